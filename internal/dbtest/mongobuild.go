package dbtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// errNoModule is under the error of a machine that cannot build the database.
var errNoModule = errors.New("the module in internal/dbtest/ferretdb cannot be built")

// buildFerret returns the program of the nested module. It is built once for
// what the module's files say, into a folder that programs can be run from,
// which a memory file system may forbid. The first build takes a minute or two.
func buildFerret() (string, error) {
	source, err := ferretSource()
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoModule, err)
	}
	name, err := sourceName(source)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoModule, err)
	}
	base, err := ownFolder(os.TempDir())
	if err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(base, "build.lock"), syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer unlock()
	program := filepath.Join(base, name)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	building := program + ".new"
	cmd := exec.Command("go", "build", "-o", building, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", errNoModule, err, out)
	}
	if err := errors.Join(os.Chmod(building, 0o755), os.Rename(building, program)); err != nil {
		return "", fmt.Errorf("keeping the program of ferretdb: %w", err)
	}
	return program, nil
}

// ferretSource is the nested module's folder, next to this file.
func ferretSource() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return "", errors.New("the tests were built without the paths of their source files")
	}
	return filepath.Join(filepath.Dir(file), "ferretdb"), nil
}

// sourceName is the program's name: other sources or another compiler are another program.
func sourceName(dir string) (string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") && !strings.HasPrefix(f.Name(), "go.") {
			continue
		}
		body, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, f.Name(), len(body))
		sum.Write(body)
	}
	return "ferretdb-" + hex.EncodeToString(sum.Sum(nil)[:8]), nil
}
