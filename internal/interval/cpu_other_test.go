//go:build !linux

package interval

import "time"

var begin = time.Now()

// threadCPU and processCPU fall back to wall time.
func threadCPU() time.Duration  { return time.Since(begin) }
func processCPU() time.Duration { return time.Since(begin) }
