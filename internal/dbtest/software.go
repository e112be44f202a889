package dbtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/shardway/shardway/internal/installed"
)

const (
	loopback = "127.0.0.1"

	// The administrator of every server started here. The password has what URLs and DSNs must escape.
	adminUser     = "admin"
	adminPassword = "p@ss:w/ord#?%"
)

// software is an installed database product: how to make a data directory and how to run a server on one.
type software struct {
	engine  Engine
	account string // that servers run as when the tests run as root
	version string // in the program's own words
	server  string // path of the server program
	creator string // path of the program that makes data directories
	adminDB string // database that an administrator may always connect to

	// initialize makes home/data, a data directory with the administrator in it.
	initialize func(soft *software, as *syscall.Credential, home string) error
	// arguments start a server on home/data. Settings, "name=value", win over the defaults.
	arguments func(home string, port int, settings []string) []string
	recipe    string // changes when initialize does

	stop, crash syscall.Signal // end a server in order, or at once
}

// located finds each engine's software once.
var located = map[Engine]func() (*software, error){
	EnginePostgres: sync.OnceValues(locatePostgres),
	EngineMySQL:    sync.OnceValues(locateMariaDB),
}

// locate finds the software of an engine or says how to get it.
func locate(e Engine) (*software, error) {
	find, ok := located[e]
	if !ok {
		return nil, fmt.Errorf("%s cannot be started here: set %s to the URL of an administrator's login on a server", e, e.variable())
	}
	return find()
}

// templateName is the folder of the template: another version, administrator or recipe is another template.
func (s *software) templateName() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{s.version, s.server, s.recipe, adminUser, adminPassword}, "\n")))
	return "template-" + string(s.engine) + "-" + hex.EncodeToString(sum[:6])
}

// readVersion asks the server program for its version.
func (s *software) readVersion() error {
	out, err := exec.Command(s.server, "--version").Output()
	if err != nil {
		return fmt.Errorf("asking %s for its version: %w", s.server, err)
	}
	s.version = strings.TrimSpace(string(out))
	return nil
}

// errNotInstalled is under the error of a product that is not there.
var errNotInstalled = errors.New("not installed")

// notInstalled says how to get a product.
func notInstalled(product string, e Engine, debianPackage string) error {
	return fmt.Errorf("%s is %w: run %q, or %q, or set %s to the URL of an administrator's login on a server",
		product, errNotInstalled, "make test-deps", "apt-get install "+debianPackage, e.variable())
}

// postgresRecipe are the arguments of initdb. Debian's own clusters are UTF-8 as well; C.UTF-8 is on every system.
var postgresRecipe = []string{
	"--auth-local=reject", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8",
	"--no-sync", "--no-instructions", "--wal-segsize=1",
}

// locatePostgres finds the newest PostgreSQL.
func locatePostgres() (*software, error) {
	folders := installed.PostgresFolders()
	s := &software{
		engine: EnginePostgres, account: "postgres", adminDB: "postgres",
		initialize: initializePostgres, arguments: postgresArguments, recipe: "1 " + strings.Join(postgresRecipe, " "),
		stop: syscall.SIGINT, crash: syscall.SIGQUIT,
	}
	var ok bool
	if s.creator, ok = installed.Program("initdb", folders...); !ok {
		return nil, notInstalled("PostgreSQL", EnginePostgres, "postgresql")
	}
	if s.server, ok = installed.Program("postgres", filepath.Dir(s.creator)); !ok {
		return nil, notInstalled("PostgreSQL's server", EnginePostgres, "postgresql")
	}
	return s, s.readVersion()
}

func initializePostgres(s *software, as *syscall.Credential, home string) error {
	verifier, err := quickSecret(adminPassword)
	if err != nil {
		return err
	}
	secret := filepath.Join(home, "password")
	if err := os.WriteFile(secret, []byte(verifier+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing the administrator's password: %w", err)
	}
	if err := giveTo(secret, as); err != nil {
		return err
	}
	args := append([]string{"--pgdata=data", "--username=" + adminUser, "--pwfile=" + secret}, postgresRecipe...)
	return run(command(as, home, s.creator, args...))
}

// postgresArguments starts without a socket, whose path may be too long. The system may lose power: the data is a test's.
func postgresArguments(home string, port int, settings []string) []string {
	args := []string{"-D", filepath.Join(home, "data")}
	for _, setting := range append([]string{
		fmt.Sprint("port=", port), "listen_addresses=" + loopback, "unix_socket_directories=",
		"fsync=off", "max_connections=200", "shared_buffers=32MB", "max_wal_size=256MB",
		"autovacuum=off", "jit=off", "max_parallel_workers_per_gather=0", "log_min_messages=log",
	}, settings...) {
		args = append(args, "-c", setting)
	}
	return args
}

// mariadbRecipe are the arguments of mariadb-install-db: a small log makes a small template.
var mariadbRecipe = []string{
	"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--cross-bootstrap",
	"--innodb-log-file-size=8M", "--innodb-doublewrite=0", "--innodb-use-native-aio=0", "--innodb-flush-log-at-trx-commit=0",
}

// mariadbAdmin makes the administrator. Accounts without a password are left on the socket alone, inside the
// server's own folder. The first statement ends the mode in which no account can be made.
const mariadbAdmin = `FLUSH PRIVILEGES;
DROP USER IF EXISTS 'root'@'127.0.0.1', 'root'@'::1';
CREATE USER '` + adminUser + `'@'%' IDENTIFIED BY '` + adminPassword + `';
GRANT ALL ON *.* TO '` + adminUser + `'@'%' WITH GRANT OPTION;
`

func locateMariaDB() (*software, error) {
	s := &software{
		engine: EngineMySQL, account: "mysql", adminDB: "mysql",
		initialize: initializeMariaDB, arguments: mariadbArguments, recipe: strings.Join(mariadbRecipe, " ") + mariadbAdmin,
		stop: syscall.SIGTERM, crash: syscall.SIGKILL,
	}
	var ok bool
	if s.server, ok = installed.Program("mariadbd", "/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/bin"); !ok {
		return nil, notInstalled("MariaDB", EngineMySQL, "mariadb-server")
	}
	if s.creator, ok = installed.Program("mariadb-install-db", "/usr/bin", "/usr/local/bin"); !ok {
		return nil, notInstalled("mariadb-install-db", EngineMySQL, "mariadb-server")
	}
	return s, s.readVersion()
}

func initializeMariaDB(s *software, as *syscall.Credential, home string) error {
	statements := filepath.Join(home, "admin.sql")
	if err := os.WriteFile(statements, []byte(mariadbAdmin), 0o600); err != nil {
		return fmt.Errorf("writing the administrator's statements: %w", err)
	}
	if err := giveTo(statements, as); err != nil {
		return err
	}
	args := append([]string{"--no-defaults", "--datadir=" + filepath.Join(home, "data"), "--extra-file=" + statements}, mariadbRecipe...)
	return run(command(as, home, s.creator, args...))
}

// mariadbArguments names the character set that Debian's configuration file names: without any file, which is what
// keeps a machine's own settings out, the server would speak latin1. A commit is written but
// not flushed to disk (2): it outlives a killed server, which with 0 it would not, and costs no wait.
func mariadbArguments(home string, port int, settings []string) []string {
	args := []string{
		"--no-defaults", "--datadir=" + filepath.Join(home, "data"), "--tmpdir=" + home, "--socket=mysql.sock",
		"--pid-file=" + filepath.Join(home, "pid"), fmt.Sprint("--port=", port), "--bind-address=" + loopback,
		"--skip-name-resolve", "--max-connections=200", "--performance-schema=0",
		"--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci",
		"--innodb-buffer-pool-size=64M", "--innodb-log-file-size=8M", "--innodb-doublewrite=0",
		"--innodb-use-native-aio=0", "--innodb-flush-log-at-trx-commit=2",
	}
	for _, setting := range settings {
		args = append(args, "--"+setting)
	}
	return args
}
