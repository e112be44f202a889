package replicas

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/installed"
	"github.com/shardway/shardway/postgres"
)

// ErrNoPostgres is a machine without PostgreSQL's programs.
var ErrNoPostgres = errors.New("PostgreSQL's programs are not on this machine")

// login and database of the servers of one run.
const (
	login    = "demo"
	database = "postgres"
)

// startLimit bounds the start of one server.
const startLimit = time.Minute

// Demo starts a PostgreSQL primary and two secondaries in dir, which
// [Folder] has made, tells the story on them, and ends them. They listen on loopback, with a
// password that nobody else knows. The link to the first secondary is slow. On a
// machine without PostgreSQL it returns [ErrNoPostgres] and does nothing.
func Demo(ctx context.Context, out io.Writer, dir string) (err error) {
	programs, err := findPrograms()
	if err != nil {
		return err
	}
	c := &cluster{programs: programs, dir: dir, login: shardway.Credentials{User: login, Password: rand.Text()}}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := c.start(ctx); err != nil {
		return fmt.Errorf("starting PostgreSQL for the demo: %w", err)
	}
	s := &Story{Out: out, Login: c.login, Promote: true, Wait: startLimit, Location: shardway.Location{Engine: "postgres", Database: database}}
	for _, address := range c.addresses {
		s.Location.Servers = append(s.Location.Servers, shardway.Server{Address: address})
	}
	return s.Tell(ctx)
}

// findPrograms returns the folder of the newest PostgreSQL.
func findPrograms() (string, error) {
	initdb, found := installed.Program("initdb", installed.PostgresFolders()...)
	if found {
		_, found = installed.Program("postgres", filepath.Dir(initdb))
	}
	if !found {
		return "", ErrNoPostgres
	}
	return filepath.Dir(initdb), nil
}

// cluster is a primary, two secondaries, and a relay before the first of these.
type cluster struct {
	programs  string // their folder
	dir       string
	login     shardway.Credentials
	as        *syscall.Credential // nil: as ourselves
	servers   []*server
	relay     *relay
	addresses []string // by which the story knows the servers
}

// server is a running program.
type server struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
}

// start makes the data of all servers before the first one runs, so that they
// are copies of each other.
func (c *cluster) start(ctx context.Context) (err error) {
	if c.as, err = installed.Account("postgres"); err != nil {
		return err
	}
	if err := c.makeData(ctx); err != nil {
		return err
	}
	ports, err := freePorts(len(names))
	if err != nil {
		return err
	}
	for i, name := range names {
		if i > 0 {
			if err := c.follow(name, ports[0]); err != nil {
				return err
			}
		}
		if err := c.run(ctx, name, ports[i]); err != nil {
			return err
		}
	}
	if c.relay, err = newRelay(address("127.0.0.1", ports[1])); err != nil {
		return err
	}
	c.addresses = []string{address("127.0.0.1", ports[0]), c.relay.address(), address("localhost", ports[2])}
	return nil
}

// names of the servers' data folders; the first one is the primary.
var names = []string{"primary", "secondary1", "secondary2"}

func (c *cluster) makeData(ctx context.Context) error {
	if err := c.give(c.dir); err != nil {
		return err
	}
	secret := filepath.Join(c.dir, "password")
	if err := os.WriteFile(secret, []byte(c.login.Password+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(secret)
	if err := c.give(secret); err != nil {
		return err
	}
	err := c.do(ctx, filepath.Join(c.programs, "initdb"), "--pgdata="+names[0], "--username="+login, "--pwfile="+secret,
		"--auth-local=reject", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions")
	for _, name := range names[1:] {
		if err == nil {
			err = c.do(ctx, "cp", "-a", names[0], name)
		}
	}
	return err
}

// follow configures a server that does not run to be a secondary.
func (c *cluster) follow(name string, primary int) error {
	source := fmt.Sprintf("primary_conninfo = 'host=127.0.0.1 port=%d user=%s password=%s'\n", primary, login, c.login.Password)
	for file, text := range map[string]string{"standby.signal": "", "postgresql.auto.conf": source} {
		path := filepath.Join(c.dir, name, file)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		if err := c.give(path); err != nil {
			return err
		}
	}
	return nil
}

// run starts a server and waits for its answer.
func (c *cluster) run(ctx context.Context, name string, port int) error {
	// Not of ctx: the servers outlive an interrupted story, which cleans up on them.
	cmd := c.command(context.WithoutCancel(ctx), filepath.Join(c.programs, "postgres"), "-D", filepath.Join(c.dir, name),
		"-c", fmt.Sprint("port=", port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off",
		"-c", "shared_buffers=16MB", "-c", "wal_retrieve_retry_interval=100ms")
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s := &server{cmd, make(chan struct{})}
	c.servers = append(c.servers, s)
	go func() {
		defer close(s.ended)
		_ = cmd.Wait() // a server told to end at once does not end with 0
	}()
	connector, err := postgres.Engine{}.Connector(address("127.0.0.1", port), database, c.login)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", name, err)
		case <-s.ended:
			text, _ := os.ReadFile(log.Name()) // may be empty
			return fmt.Errorf("%s has ended: %s", name, text)
		case <-tick.C:
		}
	}
}

// end ends the servers at once: nobody will read their data.
func (c *cluster) end() (err error) {
	if c.relay != nil {
		c.relay.close()
	}
	for _, s := range c.servers {
		if e := s.cmd.Process.Signal(syscall.SIGQUIT); !errors.Is(e, os.ErrProcessDone) {
			err = errors.Join(err, e)
		}
	}
	for _, s := range c.servers {
		<-s.ended
	}
	return err
}

func (c *cluster) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "HOME=" + c.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as, Setpgid: true} // Ctrl-C is for the demo alone
	return cmd
}

// do runs a program to its end.
func (c *cluster) do(ctx context.Context, program string, args ...string) error {
	text, err := c.command(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w: %s", filepath.Base(program), err, strings.TrimSpace(string(text)))
	}
	return nil
}

// give makes a file or folder the servers' own.
func (c *cluster) give(path string) error {
	if c.as == nil {
		return nil
	}
	return os.Chown(path, int(c.as.Uid), int(c.as.Gid))
}

func address(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }

// freePorts finds ports that nobody listens on.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after the last: they are different ports
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
