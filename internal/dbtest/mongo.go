package dbtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/internal/installed"
)

// EngineMongoDB is the engine of [Mongo]. It speaks no SQL, so it is none of [Engines].
const EngineMongoDB Engine = "mongodb"

// MongoServer is a MongoDB deployment. It is safe for concurrent use.
type MongoServer struct {
	uri   string // without a database
	local *ferret
}

// MongoDatabase is a database of a [MongoServer] that belongs to one test.
type MongoDatabase struct {
	Addr     string // host:port; several, separated by commas, for a user's own replica set
	Name     string
	URI      string // with login and options where there are any, and the database
	External bool   // of the deployment that SHARDWAY_TEST_MONGODB names
}

// Mongo returns the test binary's MongoDB deployment: the one that SHARDWAY_TEST_MONGODB names, such as
// mongodb://admin:secret@127.0.0.1:27017/?replicaSet=rs0, else FerretDB from the module in folder ferretdb, which is
// built once for all packages. FerretDB is a standalone server: it has no transactions, no change streams and no
// logins. The relay in front of it works on one command at a time.
//
// It skips the test where there is none, and fails it where SHARDWAY_TEST_REQUIRE names mongodb.
func Mongo(t testing.TB) *MongoServer {
	t.Helper()
	s, err := sharedMongo()
	if errors.Is(err, errNoModule) {
		EngineMongoDB.unavailable(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// RealMongo is [Mongo] for tests that need what FerretDB has not: it skips them unless SHARDWAY_TEST_MONGODB names a
// deployment.
func RealMongo(t testing.TB) *MongoServer {
	t.Helper()
	if os.Getenv(EngineMongoDB.variable()) == "" {
		t.Skipf("SKIPPED, nothing was tested on a real MongoDB deployment: set %s to the URI of a replica set", EngineMongoDB.variable())
	}
	return Mongo(t)
}

// NewDatabase returns a database for this test alone, with a name that nobody else has. It is dropped after the test.
func (s *MongoServer) NewDatabase(t testing.TB) MongoDatabase {
	t.Helper()
	u, err := url.Parse(s.uri)
	if err != nil {
		t.Fatal("the deployment's URI cannot be read")
	}
	name := unique(t.Name())
	u.Path = "/" + name
	if q := u.Query(); u.User != nil && !q.Has("authSource") { // else logins would be looked for in the new database
		q.Set("authSource", "admin")
		u.RawQuery = q.Encode()
	}
	if s.local == nil {
		t.Cleanup(func() { s.drop(t, name) })
	}
	return MongoDatabase{Addr: u.Host, Name: name, URI: u.String(), External: s.local == nil}
}

// drop removes a database of a user's own deployment; those of the server started here go with it.
func (s *MongoServer) drop(t testing.TB, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	if err == nil {
		err = errors.Join(client.Database(name).Drop(ctx), client.Disconnect(ctx))
	}
	if err != nil {
		t.Errorf("dropping database %q: %v", name, err)
	}
}

var sharedMongo = sync.OnceValues(func() (*MongoServer, error) {
	if !inMain.Load() {
		return nil, errNoMain
	}
	if uri := os.Getenv(EngineMongoDB.variable()); uri != "" {
		u, err := url.Parse(uri)
		if err != nil || u.Scheme != "mongodb" || u.Host == "" {
			return nil, fmt.Errorf("reading %s: it is no URI of the form mongodb://user:password@host:port/?options", EngineMongoDB.variable())
		}
		return &MongoServer{uri: uri}, nil
	}
	f, err := startFerret()
	if err != nil {
		return nil, err
	}
	addAtEnd(f.end)
	return &MongoServer{uri: "mongodb://" + f.addr + "/", local: f}, nil
})

// ferret is the FerretDB program that this process started.
type ferret struct {
	proc *process
	home string
	addr string
}

func startFerret() (*ferret, error) {
	program, err := buildFerret()
	if err != nil {
		return nil, err
	}
	run, err := runFolder()
	if err != nil {
		return nil, err
	}
	as, err := installed.Account("nobody")
	if err != nil {
		return nil, err
	}
	f := &ferret{home: filepath.Join(run, "ferretdb-"+rand.Text())}
	if err := makeFolder(f.home, as); err != nil {
		return nil, err
	}
	if err := f.start(program, as); err != nil {
		return nil, errors.Join(err, os.RemoveAll(f.home))
	}
	return f, nil
}

func (f *ferret) start(program string, as *syscall.Credential) error {
	logPath := filepath.Join(f.home, "log")
	log, err := os.Create(logPath)
	if err != nil {
		return fmt.Errorf("opening the log of ferretdb: %w", err)
	}
	defer log.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting ferretdb: %w", err)
	}
	defer out.Close()
	cmd := command(as, f.home, program, "-dir", f.home, "-listen", loopback+":0", "-until", "signal")
	cmd.Stdout, cmd.Stderr = in, log
	f.proc, err = startProcess(cmd, syscall.SIGKILL)
	_ = in.Close()
	if err != nil {
		return err
	}
	if _, err := fmt.Fscanln(out, &f.addr); err != nil {
		_ = f.proc.end(syscall.SIGKILL)
		return fmt.Errorf("starting ferretdb: %w\n%s", err, tail(logPath))
	}
	return nil
}

// end ends the program at once and removes its files: nobody will read them.
func (f *ferret) end() error {
	return errors.Join(f.proc.end(syscall.SIGKILL), os.RemoveAll(f.home))
}
