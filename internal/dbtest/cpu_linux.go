package dbtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPU returns the CPU time that this process has taken so far, and that of
// servers with their children, which counts in steps of 10 ms. A pid of 0 is no
// server. Elsewhere than on Linux it is 0. It panics when the system does not tell.
func CPU(servers ...int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	sum := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	for _, pid := range servers {
		sum += treeCPU(pid)
	}
	return sum
}

// treeCPU returns the CPU time of a process and its children, in steps of 10 ms.
func treeCPU(pid int) (sum time.Duration) {
	if pid == 0 {
		return 0
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		id, _ := strconv.Atoi(strings.Split(path, "/")[2])
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
		parent, _ := strconv.Atoi(fields[1])
		if id != pid && parent != pid {
			continue
		}
		var user, system int64
		_, _ = fmt.Sscan(fields[11], &user)
		_, _ = fmt.Sscan(fields[12], &system)
		sum += time.Duration(user+system) * 10 * time.Millisecond
	}
	return sum
}
