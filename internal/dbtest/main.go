package dbtest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// inMain is set while Run is: without it nothing would end the servers.
var inMain atomic.Bool

// errNoMain is what a test sees whose package does not use Main.
var errNoMain = errors.New(`dbtest: this package needs "func TestMain(m *testing.M) { dbtest.Main(m) }", which ends its servers`)

// shared starts the one server of an engine on first use and returns it, or the same error, ever after.
var shared = map[Engine]func() (*Server, error){
	EnginePostgres:  sync.OnceValues(func() (*Server, error) { return startShared(EnginePostgres) }),
	EngineMySQL:     sync.OnceValues(func() (*Server, error) { return startShared(EngineMySQL) }),
	EngineSQLServer: sync.OnceValues(func() (*Server, error) { return startShared(EngineSQLServer) }),
}

// atEnd holds what Run does after the tests, last in first out.
var atEnd struct {
	mu    sync.Mutex // guards the field below
	steps []func() error
}

// Main runs the tests, ends every server, removes their folders and exits. For TestMain.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main without the exit: it returns the code to exit with, which is not 0 when a test failed or a server
// could not be ended.
func Run(m *testing.M) (code int) {
	if err := checkRequired(); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		return 2
	}
	inMain.Store(true)
	defer func() {
		if err := runAtEnd(); err != nil {
			fmt.Fprintln(os.Stderr, "dbtest:", err)
			code = max(code, 1)
		}
	}()
	return m.Run()
}

// addAtEnd adds a step for Run to do after the tests.
func addAtEnd(step func() error) {
	atEnd.mu.Lock()
	defer atEnd.mu.Unlock()
	atEnd.steps = append(atEnd.steps, step)
}

// runAtEnd does every step, also after one that failed.
func runAtEnd() error {
	atEnd.mu.Lock()
	defer atEnd.mu.Unlock()
	var errs []error
	for i := len(atEnd.steps) - 1; i >= 0; i-- {
		errs = append(errs, atEnd.steps[i]())
	}
	atEnd.steps = nil
	return errors.Join(errs...)
}

// startShared returns the user's own server where the environment names one, else a server started here.
func startShared(e Engine) (*Server, error) {
	if !inMain.Load() {
		return nil, errNoMain
	}
	if address := os.Getenv(e.variable()); address != "" {
		s, err := openExternal(e, address)
		if err != nil {
			return nil, fmt.Errorf("using the server of %s: %w", e.variable(), err)
		}
		addAtEnd(s.leaveExternal)
		return s, nil
	}
	soft, err := locate(e)
	if err != nil {
		return nil, err
	}
	s, err := startLocal(soft, nil)
	if err != nil {
		return nil, err
	}
	s.local.shared = true
	addAtEnd(s.end)
	return s, nil
}
