// Package installed finds the programs of databases on this machine and the
// accounts to run them as, for the demo and for tests.
package installed

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// Program looks for a program in the folders, then in PATH.
func Program(name string, folders ...string) (path string, found bool) {
	for _, dir := range folders {
		path := filepath.Join(dir, name)
		if state, err := os.Stat(path); err == nil && state.Mode().IsRegular() && state.Mode()&0o111 != 0 {
			return path, true
		}
	}
	path, err := exec.LookPath(name)
	return path, err == nil
}

// PostgresFolders are the folders of PostgreSQL's programs, the newest first.
// Debian keeps them out of PATH.
func PostgresFolders() []string {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well formed
	slices.SortFunc(folders, func(a, b string) int { return major(b) - major(a) })
	return folders
}

// major reads 15 from /usr/lib/postgresql/15/bin.
func major(folder string) (version int) {
	_, _ = fmt.Sscanf(filepath.Base(filepath.Dir(folder)), "%d", &version) // 0 when it is no number
	return version
}

// Account returns the account to run a server as: nil, which is one's own, unless
// the program runs as root, which servers refuse.
func Account(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("finding the account to run a server as: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("reading the user id of %s: %w", name, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("reading the group id of %s: %w", name, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
