package mongoshard_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// otherDrivers are the versions of the driver that the canaries run with, next
// to the module's own. testdata/driver.sum has their checksums.
var otherDrivers = []string{"v2.7.0", "v2.8.0"}

// underTest are the tests that depend on the driver's behaviour.
const underTest = "^Test(Canary|Mongos|Retry|Cursor|Sharded|Transactions?|ReplicaSet|ChangeStream|ReadPreference|EveryRead|Failover|TwoClients|InFlight|LoadBalancer|Compressed)"

// nestedEnv tells a run with another driver that it must not start further ones.
const nestedEnv = "SHARDWAY_TEST_NESTED"

// The package holds what it promises with each supported version of the driver:
// the real go command builds and runs its tests with it.
func TestDriverVersions(t *testing.T) { //nolint:paralleltest // each version is a build that uses every core
	if testing.Short() || os.Getenv(nestedEnv) != "" {
		t.Skip("other versions of the driver are left out by -short")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("other versions of the driver need the go command: %v", err)
	}
	for _, version := range otherDrivers { //nolint:paralleltest // as above
		t.Run(version, func(t *testing.T) {
			modfile := driverModfile(t, version)
			if out, err := goCommand(t, "mod", "download", "-modfile="+modfile, "go.mongodb.org/mongo-driver/v2"); err != nil {
				t.Skipf("driver %s is neither in the module cache nor to be had: %v\n%s", version, err, out)
			}
			out, err := goCommand(t, "test", "-modfile="+modfile, "-count=1", "-vet=off", "-run", underTest, ".")
			if err != nil {
				t.Fatalf("with driver %s: %v\n%s", version, err, out)
			}
			if bytes.Contains(out, []byte("no tests to run")) {
				t.Fatal("no test ran")
			}
		})
	}
}

func goCommand(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Env = append(os.Environ(), nestedEnv+"=1", "GOFLAGS=-buildvcs=false")
	return command.CombinedOutput()
}

// driverModfile writes the module's go.mod with another version of the driver.
func driverModfile(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	required := regexp.MustCompile(`(?m)^(\s*(?:require )?go\.mongodb\.org/mongo-driver/v2) v\S+`)
	text := read(t, "../go.mod")
	if !required.MatchString(text) {
		t.Fatal("go.mod does not require the driver")
	}
	modfile := filepath.Join(dir, "go.mod")
	write(t, modfile, required.ReplaceAllString(text, "${1} "+version))
	write(t, filepath.Join(dir, "go.sum"), read(t, "../go.sum")+read(t, "testdata/driver.sum"))
	return modfile
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The versions that the package's documentation names are those that are
// tested.
func TestDocumentedDriverVersions(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"doc.go", "../docs/mongodb.md"} {
		text := strings.Join(strings.Fields(strings.ReplaceAll(read(t, file), "//", "")), " ")
		for _, version := range append(otherDrivers, ownDriver(t)) {
			if !strings.Contains(text, version) {
				t.Errorf("%s does not name %s", file, version)
			}
		}
	}
}

// ownDriver is the version that the module requires.
func ownDriver(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`go\.mongodb\.org/mongo-driver/v2 (v\S+)`).FindStringSubmatch(read(t, "../go.mod"))
	if found == nil {
		t.Fatal("go.mod does not require the driver")
	}
	return found[1]
}
