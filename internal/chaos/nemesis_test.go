package chaos

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// clientVariable has the configuration of a client: the test program is the
// client's, too.
const clientVariable = "SHARDWAY_CHAOS_CLIENT"

// process is a running client.
type process struct {
	cfg  Config
	cmd  *exec.Cmd
	done chan error
}

// nemesis runs the clients and does them harm. It is for one goroutine.
type nemesis struct {
	t       *testing.T
	world   *world
	dir     string // journals and logs
	fault   Fault
	random  *rand.Rand
	clients []*process
	started int
	counts  map[string]int // what was done, for the report
	mending sync.WaitGroup // of what dead clients have left
	mend    context.Context
}

func newNemesis(t *testing.T, w *world, seed uint64, fault Fault) *nemesis {
	t.Helper()
	dir, err := os.MkdirTemp("", "shardway-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("journals and logs of the clients are in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	n := &nemesis{t: t, world: w, dir: dir, fault: fault, random: rand.New(rand.NewPCG(seed, 2)), counts: map[string]int{}, mend: t.Context()}
	t.Cleanup(func() { // of a run that was broken off
		for _, p := range n.clients {
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	})
	return n
}

// launch starts a client. Their leases are unlike, so that some are taken for
// dead while they live.
func (n *nemesis) launch(role Role) {
	n.t.Helper()
	n.started++
	cfg := n.world.config(fmt.Sprintf("%s%d", role, n.started))
	cfg.Role, cfg.Seed, cfg.Fault = role, n.random.Uint64(), n.fault
	cfg.Journal = filepath.Join(n.dir, cfg.ID+".journal")
	cfg.Lease = time.Duration(300+n.random.IntN(4000)) * time.Millisecond
	text, err := json.Marshal(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(n.dir, cfg.ID+".log"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clientVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	p := &process{cfg: cfg, cmd: cmd, done: make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	n.clients = append(n.clients, p)
}

// harms are what the nemesis does, each as often as it is listed.
func (n *nemesis) harms() []func() {
	kill, stop := n.killClient, n.stopClient
	return []func(){
		kill, kill, kill, stop, stop,
		n.cut, n.cut, n.blackHole, n.delay,
		n.restartStore, n.restartShard, n.failover,
	}
}

// run does harm until the time is up.
func (n *nemesis) run(length time.Duration) {
	deadline := time.Now().Add(length)
	harms := n.harms()
	for time.Now().Before(deadline) {
		n.wait(100, 900)
		harms[n.random.IntN(len(harms))]()
	}
}

// wait lets the clients work.
func (n *nemesis) wait(least, spread int) {
	pause(n.t.Context(), time.Duration(least+n.random.IntN(spread))*time.Millisecond)
}

func (n *nemesis) killClient() {
	i := n.random.IntN(len(n.clients))
	p := n.clients[i]
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
	n.clients = append(n.clients[:i], n.clients[i+1:]...)
	n.counts["clients killed"]++
	if p.cfg.Role == Mover {
		n.mending.Go(func() {
			if err := Sweep(n.mend, n.world.config("janitor of "+p.cfg.ID), p.cfg.ID); err != nil {
				n.t.Logf("sweeping after %s: %v", p.cfg.ID, err)
			}
		})
	}
	n.launch(p.cfg.Role)
}

// stopClient lets a client sleep beyond its lease, or not.
func (n *nemesis) stopClient() {
	p := n.clients[n.random.IntN(len(n.clients))]
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	n.counts["clients stopped for a while"]++
	n.wait(300, 3000)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
}

func (n *nemesis) pair() pair {
	if n.random.IntN(2) == 0 {
		return n.world.pairs["postgres"]
	}
	return n.world.pairs["mysql"]
}

// cut breaks all connections of a primary, with its secondary as well.
func (n *nemesis) cut() {
	proxy := n.world.storeProxy
	if n.random.IntN(3) > 0 {
		p := n.pair()
		proxy = p.Proxy(p.Primary())
	}
	proxy.Cut()
	n.counts["servers cut off"]++
	n.wait(50, 1500)
	proxy.Restore()
}

func (n *nemesis) blackHole() {
	p := n.pair()
	proxy := p.Proxy(p.Primary())
	proxy.BlackHole()
	n.counts["servers made silent"]++
	n.wait(100, 2000)
	proxy.Cut() // what was dropped is missing from the streams
	proxy.Restore()
}

func (n *nemesis) delay() {
	p := n.pair()
	proxy := p.Proxy(p.Primary())
	proxy.Delay(time.Duration(1+n.random.IntN(20)) * time.Millisecond)
	n.counts["servers made slow"]++
	n.wait(500, 1500)
	proxy.Delay(0)
}

func (n *nemesis) restartStore() {
	n.world.store.Kill(n.t)
	n.counts["store crashes"]++
	n.wait(1, 1500)
	n.world.store.Restart(n.t)
}

func (n *nemesis) restartShard() {
	p := n.pair()
	p.Kill(n.t, p.Primary())
	n.counts["primary crashes"]++
	n.wait(1, 1500)
	p.Restart(n.t, p.Primary())
	n.world.synchronize(n.t)
}

// failover crashes a primary, promotes its secondary, and has the former one
// follow. Nothing acknowledged is lost, for replication is synchronous.
func (n *nemesis) failover() {
	p := n.pair()
	former := p.Primary()
	p.Kill(n.t, former)
	n.wait(1, 300)
	n.awaitApplied(p, 1-former)
	p.Promote(n.t, 1-former)
	n.world.synchronize(n.t)
	n.counts["failovers"]++
	n.wait(1, 500)
	p.Rejoin(n.t, former)
	p.AwaitReplay(n.t, former)
}

// awaitApplied waits until a replica of MariaDB has applied all that it has
// received: its promotion would drop the rest, though it was acknowledged.
// PostgreSQL applies it by itself.
func (n *nemesis) awaitApplied(p pair, i int) {
	n.t.Helper()
	if p != n.world.pairs["mysql"] {
		return
	}
	const patience = 600
	for range patience {
		if strings.HasPrefix(n.replica(p, i)["Slave_SQL_Running_State"], "Slave has read all relay log") {
			return
		}
		pause(n.t.Context(), 100*time.Millisecond)
	}
	n.t.Fatalf("the replica does not apply what it has received: %v", n.replica(p, i))
}

// replica is what a replica of MariaDB says of itself.
func (n *nemesis) replica(p pair, i int) map[string]string {
	n.t.Helper()
	db := p.Server(i).Admin().Open(n.t)
	defer db.Close()
	rows, err := db.QueryContext(context.WithoutCancel(n.t.Context()), "SHOW SLAVE STATUS")
	if err != nil {
		n.t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		n.t.Fatal(err)
	}
	status := map[string]string{}
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		targets := make([]any, len(names))
		for k := range values {
			targets[k] = &values[k]
		}
		if err := rows.Scan(targets...); err != nil {
			n.t.Fatal(err)
		}
		for k, name := range names {
			if values[k].String != "" {
				status[name] = values[k].String
			}
		}
	}
	if err := rows.Err(); err != nil {
		n.t.Fatal(err)
	}
	return status
}

// end lets the clients end, and sweeps up. A client that leaves a goroutine
// behind, or does not end, is an error.
func (n *nemesis) end() {
	n.t.Helper()
	for _, p := range n.clients {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	const limit = 2 * time.Minute
	for _, p := range n.clients {
		select {
		case err := <-p.done:
			if err != nil && !unborn(err) {
				n.t.Errorf("client %s: %v", p.cfg.ID, err)
			}
		case <-time.After(limit):
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it prints its goroutines
			n.t.Errorf("client %s does not end: %v", p.cfg.ID, <-p.done)
		}
	}
	n.clients = nil
	n.mending.Wait()
	ctx, cancel := context.WithTimeout(n.t.Context(), limit)
	defer cancel()
	if err := Sweep(ctx, n.world.config("janitor"), ""); err != nil {
		n.t.Errorf("sweeping up: %v", err)
	}
}

// unborn reports whether a client was ended by the very signal that asked it to:
// it had not come to listen for it, which is the first thing it does.
func unborn(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}
