package sqlshard_test

import (
	"syscall"
	"time"
)

// threadCPU returns the CPU time of the calling OS thread. Unlike wall time it does not count what other programs on the
// machine take.
func threadCPU() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
