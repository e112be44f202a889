package replicas

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account returns the login that a server runs as: ourselves, unless we are root,
// which PostgreSQL refuses.
func account(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("finding an account to run servers as: %w", err)
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

// Folder makes a temporary folder that the servers of [Demo] can reach. Root's
// own temporary folder may be closed to others.
func Folder() (string, error) {
	within := ""
	if os.Geteuid() == 0 {
		within = "/tmp"
	}
	dir, err := os.MkdirTemp(within, "shardway-demo-")
	if err != nil {
		return "", fmt.Errorf("making a folder for servers: %w", err)
	}
	return dir, nil
}
