//go:build !linux

package sqlstore_test

import "time"

// ownCPU cannot be told here.
func ownCPU() time.Duration { return 0 }

// treeCPU cannot be told here.
func treeCPU(int) time.Duration { return 0 }
