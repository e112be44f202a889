package dbtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// endLimit is how long a server may take to end before it is killed.
const endLimit = time.Minute

// process is a running server program.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended
}

// spawn runs f on the one OS thread that starts servers. The kernel's signal at the parent's death is tied to the
// thread that forked, so that thread is locked and lives as long as the process.
func spawn(f func()) {
	finished := make(chan struct{})
	spawner() <- func() {
		defer close(finished)
		f()
	}
	<-finished
}

var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// startProcess starts cmd so that the kernel sends it orphanSignal when this process dies.
func startProcess(cmd *exec.Cmd, orphanSignal syscall.Signal) (*process, error) {
	tieToParent(cmd, orphanSignal)
	var err error
	spawn(func() { err = cmd.Start() })
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the exit code of a server that was told to end says nothing
		close(p.done)
	}()
	return p, nil
}

// end sends the signal and waits until the program has ended. A program that ignores it is killed: an error.
func (p *process) end(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending process %d: %w", p.cmd.Process.Pid, err)
	}
	limit := time.NewTimer(endLimit)
	defer limit.Stop()
	select {
	case <-p.done:
		return nil
	case <-limit.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("ending process %d: it ignored %v for %v and was killed", p.cmd.Process.Pid, s, endLimit)
}

// ended says whether the program has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// command prepares a program of a database package: as the account, in dir, with an environment of its own, so that
// no PGPORT or MYSQL_HOME of the caller leaks in.
func command(as *syscall.Credential, dir, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/usr/local/sbin", "LC_ALL=C.UTF-8", "HOME=" + dir, "TMPDIR=" + dir}
	if tz, ok := os.LookupEnv("TZ"); ok {
		cmd.Env = append(cmd.Env, "TZ="+tz)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	return cmd
}

// run runs a short program to its end; the error holds what it printed.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w\n%s", cmd, err, out)
	}
	return nil
}
