package sqlstore_test

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

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
