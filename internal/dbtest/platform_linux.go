package dbtest

import (
	"os/exec"
	"syscall"
)

// memoryRoom is the free space, in bytes, below which a memory file system is left alone: containers often have 64 MB.
const memoryRoom = 2 << 30

// tieToParent has the kernel send the signal when the thread that starts cmd dies, and keeps the terminal's
// Ctrl-C away from the server, which Run or that signal ends.
func tieToParent(cmd *exec.Cmd, s syscall.Signal) {
	cmd.SysProcAttr.Pdeathsig = s
	cmd.SysProcAttr.Setpgid = true
}

// memoryFolder is a folder on a memory file system with enough room, or "".
func memoryFolder() string {
	const folder = "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < memoryRoom {
		return ""
	}
	const writeAndSearch = 3
	if syscall.Access(folder, writeAndSearch) != nil {
		return ""
	}
	return folder
}
