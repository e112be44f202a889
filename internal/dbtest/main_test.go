package dbtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// helperVariable makes this test binary, run by one of its own tests, do what that test looks at from outside.
const helperVariable = "DBTEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) == "no Main" {
		os.Exit(m.Run())
	}
	Main(m)
}

// helper prepares a run of this test binary that runs one test in a mode of its own.
func helper(t *testing.T, test, mode string, environment ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+test+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), helperVariable+"="+mode)
	cmd.Env = append(cmd.Env, environment...)
	return cmd
}

// TestHelperUse is not a test of its own: TestRequire and TestWithoutMain run it in processes of their own.
func TestHelperUse(t *testing.T) {
	mode := os.Getenv(helperVariable)
	if mode == "" {
		return
	}
	e := EngineSQLServer
	if mode == "no Main" {
		e = EnginePostgres
	}
	e.NewDatabase(t)
}

func TestRequire(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, require, want string }{
		{"absent engine is skipped and says how to have it", "", "--- SKIP"},
		{"required engine fails", "postgres, sqlserver", "--- FAIL"},
		{"unknown engine is refused", "postgresql", `unknown engine "postgresql"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := helper(t, "TestHelperUse", "use", requireVariable+"="+c.require, "SHARDWAY_TEST_SQLSERVER=")
			out, err := cmd.CombinedOutput()
			if !strings.Contains(string(out), c.want) {
				t.Errorf("the run printed\n%s\nwithout %q", out, c.want)
			}
			if failed := err != nil; failed != (c.require != "") {
				t.Errorf("the run ended with %v", err)
			}
			if c.require != "postgresql" && !strings.Contains(string(out), "set SHARDWAY_TEST_SQLSERVER") {
				t.Errorf("the run printed\n%s\nand not what to do", out)
			}
		})
	}
}

func TestWithoutMain(t *testing.T) {
	t.Parallel()
	if err := EnginePostgres.Available(); err != nil {
		t.Skip(err)
	}
	out, err := helper(t, "TestHelperUse", "no Main").CombinedOutput()
	if err == nil || !strings.Contains(string(out), errNoMain.Error()) {
		t.Errorf("the run ended with %v and printed\n%s\nwithout %q", err, out, errNoMain)
	}
}
