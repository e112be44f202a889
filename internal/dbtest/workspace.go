package dbtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// A base folder, one per user and root, holds templates (kept), the runs of test processes (each removed at its
// end) and the lock files of ports. Whoever changes the first two holds the file lock "lock".
//
// Locks are flock(2): the kernel drops them when their process dies, which is how the next one knows.

// runFolder makes this process's folder for servers, once, and removes the folders of processes that died.
var runFolder = sync.OnceValues(func() (string, error) {
	if !inMain.Load() {
		return "", errNoMain
	}
	base, err := baseFolder()
	if err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(base, "lock"), syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer unlock()
	sweep(base)
	dir, err := os.MkdirTemp(base, "run-")
	if err != nil {
		return "", fmt.Errorf("making a folder for servers: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the servers' accounts pass through
		return "", fmt.Errorf("making a folder for servers: %w", err)
	}
	release, err := lockFile(filepath.Join(dir, "owner"), syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	addAtEnd(func() error {
		defer release()
		return os.RemoveAll(dir)
	})
	return dir, nil
})

// baseFolder makes or finds the base folder and checks that it is ours.
func baseFolder() (string, error) {
	root := os.Getenv("SHARDWAY_TEST_DIR")
	if root == "" {
		root = memoryFolder()
	}
	if root == "" {
		root = os.TempDir()
	}
	return ownFolder(root)
}

// ownFolder makes or finds this user's folder in root, which is open to every user.
func ownFolder(root string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", fmt.Errorf("finding the folder for servers: %w", err)
	}
	base := filepath.Join(root, "shardway-dbtest-"+strconv.Itoa(os.Geteuid()))
	if err := os.MkdirAll(filepath.Join(base, "ports"), 0o755); err != nil {
		return "", fmt.Errorf("making the folder for servers: %w", err)
	}
	state, err := os.Lstat(base)
	if err != nil {
		return "", fmt.Errorf("checking the folder for servers: %w", err)
	}
	if owner, ok := state.Sys().(*syscall.Stat_t); !state.IsDir() || ok && int(owner.Uid) != os.Geteuid() {
		return "", fmt.Errorf("checking the folder for servers: %s is not a folder of this user", base)
	}
	return base, nil
}

// sweep removes the folders of runs whose process is gone. What cannot be removed now is left to the next run.
func sweep(base string) {
	runs, _ := filepath.Glob(filepath.Join(base, "run-*")) // the pattern is well formed
	for _, dir := range runs {
		if unlock, err := lockFile(filepath.Join(dir, "owner"), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			_ = os.RemoveAll(dir)
			unlock()
		}
	}
}

// lockFile takes the lock of a file, which it makes if need be. With LOCK_NB a held lock is an error at once.
func lockFile(path string, how int) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening a lock file: %w", err)
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(f.Fd()), how)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

// Ports are taken below the range from which systems take the local ports of outgoing connections, so that nobody
// gets a stopped server's port by chance before it starts again.
const (
	lowPort  = 15000
	highPort = 32000
)

// reservePort finds a free port on 127.0.0.1 and keeps other test processes of this user from it until release.
func reservePort() (port int, release func(), err error) {
	base, err := baseFolder()
	if err != nil {
		return 0, nil, err
	}
	const tries = 100
	for range tries {
		n, err := rand.Int(rand.Reader, big.NewInt(highPort-lowPort))
		if err != nil {
			return 0, nil, fmt.Errorf("choosing a port: %w", err)
		}
		port := lowPort + int(n.Int64())
		text := strconv.Itoa(port)
		release, err := lockFile(filepath.Join(base, "ports", text), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, text))
		if err == nil {
			_ = l.Close()
			return port, release, nil
		}
		release()
	}
	return 0, nil, fmt.Errorf("choosing a port: none free in %d tries", tries)
}

// copyTemplate copies the software's template, which it makes first if there is none, to the folder to, which the
// account owns.
func copyTemplate(soft *software, as *syscall.Credential, to string) error {
	template, err := findTemplate(soft, as)
	if err != nil {
		return err
	}
	return run(command(as, filepath.Dir(to), "cp", "-a", template, to))
}

// findTemplate returns a data directory of a fresh server, shared by all packages. It never changes once it has its
// name, which a version of the software and of this recipe have in common.
func findTemplate(soft *software, as *syscall.Credential) (string, error) {
	base, err := baseFolder()
	if err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(base, "lock"), syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer unlock()
	home := filepath.Join(base, soft.templateName())
	template := filepath.Join(home, "data")
	if _, err := os.Stat(template); err == nil {
		return template, nil
	}
	building := home + ".new"
	if err := os.RemoveAll(building); err != nil {
		return "", fmt.Errorf("clearing the template of %s: %w", soft.engine, err)
	}
	if err := makeFolder(building, as); err != nil {
		return "", err
	}
	if err := soft.initialize(soft, as, building); err != nil {
		return "", fmt.Errorf("making the template of %s: %w", soft.engine, err)
	}
	if err := os.Rename(building, home); err != nil {
		return "", fmt.Errorf("making the template of %s: %w", soft.engine, err)
	}
	return template, nil
}

// makeFolder makes a folder that belongs to the account.
func makeFolder(dir string, owner *syscall.Credential) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("making a folder for a server: %w", err)
	}
	return giveTo(dir, owner)
}

// giveTo makes the account the owner of a file or folder.
func giveTo(path string, owner *syscall.Credential) error {
	if owner == nil {
		return nil
	}
	if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
		return fmt.Errorf("giving a server its files: %w", err)
	}
	return nil
}

// tail is the end of a server's log, for errors.
func tail(path string) string {
	const lines = 15
	log, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
