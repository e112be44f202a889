package interval

import (
	"syscall"
	"time"
)

// threadCPU returns the CPU time of the calling OS thread, processCPU that of the whole process. Unlike wall time they
// do not count what other programs on the machine take.
func threadCPU() time.Duration  { return cpu(1) } // RUSAGE_THREAD
func processCPU() time.Duration { return cpu(syscall.RUSAGE_SELF) }

func cpu(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
