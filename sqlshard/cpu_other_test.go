//go:build !linux

package sqlshard_test

import "time"

var begin = time.Now()

// threadCPU falls back to wall time.
func threadCPU() time.Duration { return time.Since(begin) }
