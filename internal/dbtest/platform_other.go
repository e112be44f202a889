//go:build !linux

package dbtest

import (
	"os/exec"
	"syscall"
)

// tieToParent does nothing: only Linux signals a child when its parent dies. Run ends the servers here.
func tieToParent(*exec.Cmd, syscall.Signal) {}

// memoryFolder is a folder on a memory file system with enough room, or "".
func memoryFolder() string { return "" }
