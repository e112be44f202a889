package dbtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHelperServers is not a test of its own: TestNoServerIsLeft runs it in processes of their own. It starts
// servers, prints their process ids and, told to by its input, ends in the way that its mode names.
func TestHelperServers(t *testing.T) {
	mode := os.Getenv(helperVariable)
	if mode == "" {
		return
	}
	fmt.Fprintln(os.Stdout, "PIDS", Postgres(t).PID(), MariaDB(t).PID(), NewPostgres(t, PostgresOptions{}).PID())
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	switch mode {
	case "fail":
		t.Fatal("this failure is meant")
	case "panic":
		panic("this panic is meant")
	case "panic elsewhere":
		go func() { panic("this panic is meant") }()
		select {}
	case "exit":
		os.Exit(3)
	case "kill":
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {}
	}
}

func TestNoServerIsLeft(t *testing.T) {
	t.Parallel()
	for _, e := range servers {
		if _, err := locate(e); err != nil {
			e.unavailable(t, err)
		}
	}
	for _, mode := range []string{"pass", "fail", "panic", "panic elsewhere", "exit", "kill"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			root := serverRoot(t)
			cmd := helper(t, "TestHelperServers", mode, "SHARDWAY_TEST_DIR="+root, "SHARDWAY_TEST_POSTGRES=", "SHARDWAY_TEST_MYSQL=")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			printed := bufio.NewReader(out)
			watched := watchServers(t, printed)
			if _, err := io.WriteString(in, "go\n"); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(printed) // ends with the helper: servers do not hold its output open
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); (err == nil) != (mode == "pass") {
				t.Errorf("the helper ended with %v:\n%s", err, rest)
			}
			for _, fd := range watched {
				awaitExit(t, fd)
			}
			runs, err := filepath.Glob(filepath.Join(root, "shardway-dbtest-*", "run-*"))
			if err != nil {
				t.Fatal(err)
			}
			if (mode == "pass" || mode == "fail") && len(runs) != 0 {
				t.Errorf("folders are left: %v", runs)
			}
		})
	}
}

// watchServers reads the helper's output up to its process ids and opens each process, so that its end can be
// waited for whoever its parent is by then.
func watchServers(t *testing.T, printed *bufio.Reader) (watched []int) {
	t.Helper()
	var before strings.Builder
	for {
		line, err := printed.ReadString('\n')
		if err != nil {
			t.Fatalf("the helper printed no process ids: %v\n%s", err, before.String())
		}
		before.WriteString(line)
		var postgres, mariadb, private int
		if _, err := fmt.Sscanf(line, "PIDS %d %d %d", &postgres, &mariadb, &private); err != nil {
			continue
		}
		for _, pid := range []int{postgres, mariadb, private} {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatalf("opening server process %d: %v", pid, err)
			}
			t.Cleanup(func() { _ = unix.Close(fd) })
			watched = append(watched, fd)
		}
		return watched
	}
}

// awaitExit waits until the process has ended.
func awaitExit(t *testing.T, pidfd int) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(time.Minute.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n != 1 {
			t.Fatalf("a server is still there: %v", err)
		}
		return
	}
}

// serverRoot is a folder for servers' files that every account may pass through, unlike t.TempDir.
func serverRoot(t *testing.T) string {
	t.Helper()
	base, err := baseFolder()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp(filepath.Dir(base), "shardway-dbtest-own-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}
