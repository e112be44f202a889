package selection_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// specEnv names a folder with the JSON cases of MongoDB's server selection and
// max staleness specifications. They are read in place.
const specEnv = "SHARDWAY_SPEC_TESTS"

// Our own vectors have the same form, so the same rules hold without the folder.
func TestVectors(t *testing.T) {
	t.Parallel()
	runSpecs(t, filepath.Join("testdata", "vectors"))
}

func TestSpecifications(t *testing.T) {
	t.Parallel()
	dir := os.Getenv(specEnv)
	if dir == "" {
		t.Skipf("set %s to run the MongoDB specification's cases; TestVectors covers the same rules", specEnv)
	}
	runSpecs(t, dir)
}

// runSpecs runs every JSON file below dir and logs how many there were.
func runSpecs(t *testing.T, dir string) {
	t.Helper()
	var mu sync.Mutex
	ran := make(map[string]int) // form → files
	t.Run("files", func(t *testing.T) {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".json" {
				return err
			}
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				form := runSpec(t, path)
				mu.Lock()
				defer mu.Unlock()
				ran[form]++
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	total := 0
	for _, form := range slices.Sorted(maps.Keys(ran)) {
		total += ran[form]
		t.Logf("%s: %d files ran", form, ran[form])
	}
	t.Logf("%d files ran from %s", total, dir)
	if total == 0 {
		t.Errorf("no JSON files in %s", dir)
	}
}

type specServer struct {
	Address   string            `json:"address"`
	Type      string            `json:"type"`
	AvgRTT    *float64          `json:"avg_rtt_ms"`
	Tags      map[string]string `json:"tags"`
	LastSeen  *int64            `json:"lastUpdateTime"`
	LastWrite *struct {
		Date struct {
			Number string `json:"$numberLong"`
		} `json:"lastWriteDate"`
	} `json:"lastWrite"`
}

type specFile struct {
	Topology *struct {
		Type    string       `json:"type"`
		Servers []specServer `json:"servers"`
	} `json:"topology_description"`
	Operation  string `json:"operation"`
	Preference *struct {
		Mode         string              `json:"mode"`
		TagSets      []map[string]string `json:"tag_sets"`
		MaxStaleness *float64            `json:"maxStalenessSeconds"`
	} `json:"read_preference"`
	Heartbeat     *float64     `json:"heartbeatFrequencyMS"`
	Deprioritized []specServer `json:"deprioritized_servers"`
	Suitable      []specServer `json:"suitable_servers"`
	InWindow      []specServer `json:"in_latency_window"`
	Error         bool         `json:"error"`

	State []struct {
		Address string `json:"address"`
		Count   int    `json:"operation_count"`
	} `json:"mocked_topology_state"`
	Iterations int `json:"iterations"`
	Outcome    struct {
		Tolerance float64            `json:"tolerance"`
		Expected  map[string]float64 `json:"expected_frequencies"`
	} `json:"outcome"`

	OldRTT   json.RawMessage `json:"avg_rtt_ms"`
	NewRTT   *float64        `json:"new_rtt_ms"`
	Averaged *float64        `json:"new_avg_rtt"`
}

// runSpec runs one file, whose content says which form it has.
func runSpec(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file specFile
	if err := json.Unmarshal(text, &file); err != nil {
		skipForeign(t, path, err.Error())
	}
	switch {
	case file.Averaged != nil:
		file.runRTT(t)
		return "rtt"
	case file.Topology != nil && file.Iterations > 0:
		file.runInWindow(t)
		return "in_window"
	case file.Topology != nil && file.Preference != nil:
		file.runSelection(t)
		if file.Operation != "" {
			return "server_selection"
		}
		return "max-staleness"
	}
	skipForeign(t, path, "no known form")
	return ""
}

// skipForeign skips a file of another specification; in the folders of ours an
// unreadable file is a failure.
func skipForeign(t *testing.T, path, reason string) {
	t.Helper()
	for _, folder := range []string{"rtt", "in_window", "server_selection", "max-staleness"} {
		if slices.Contains(strings.Split(filepath.ToSlash(filepath.Dir(path)), "/"), folder) {
			t.Fatalf("cannot read %s: %s", path, reason)
		}
	}
	t.Skipf("%s is no server selection case: %s", path, reason)
}

func millis(x float64) time.Duration { return time.Duration(math.Round(x * float64(time.Millisecond))) }

func (f *specFile) runRTT(t *testing.T) {
	t.Helper()
	var average topology.Measurement
	if !bytes.Equal(f.OldRTT, []byte(`"NULL"`)) {
		old, err := strconv.ParseFloat(string(f.OldRTT), 64)
		if err != nil {
			t.Fatal(err)
		}
		average = topology.Measured(millis(old))
	}
	got, known := topology.Average(average, topology.Measured(millis(*f.NewRTT))).Value()
	if diff := (got - millis(*f.Averaged)).Abs(); !known || diff > time.Microsecond {
		t.Errorf("average %v (known %v), want %v ms", got, known, *f.Averaged)
	}
}

var specRoles = map[string]topology.Role{
	"Unknown": topology.RoleUnknown, "PossiblePrimary": topology.RolePossiblePrimary,
	"Standalone": topology.RoleStandalone, "Mongos": topology.RoleMongos, "LoadBalancer": topology.RoleLoadBalancer,
	"RSPrimary": topology.RolePrimary, "RSSecondary": topology.RoleSecondary, "RSArbiter": topology.RoleArbiter,
	"RSOther": topology.RoleOther, "RSGhost": topology.RoleGhost,
}

var specKinds = map[string]topology.Kind{
	"Unknown": topology.KindUnknown, "Single": topology.KindSingle, "Sharded": topology.KindSharded,
	"ReplicaSetNoPrimary": topology.KindReplicaSetNoPrimary, "ReplicaSetWithPrimary": topology.KindReplicaSetWithPrimary,
	"LoadBalanced": topology.KindLoadBalanced, "ReplicaSet": topology.KindReplicaSet,
}

func (f *specFile) set(t *testing.T) topology.Set {
	t.Helper()
	if len(f.Topology.Servers) == 0 {
		return topology.Set{}
	}
	list := make([]topology.Server, len(f.Topology.Servers))
	for i, s := range f.Topology.Servers {
		role, known := specRoles[s.Type]
		if !known {
			t.Fatalf("unknown server type %q", s.Type)
		}
		list[i] = topology.Server{Address: s.Address, Role: role, Tags: topology.NewTags(s.Tags), LastUpdate: time.UnixMilli(0)}
		if s.AvgRTT != nil {
			list[i].AverageRTT = topology.Measured(millis(*s.AvgRTT))
		}
		if s.LastSeen != nil {
			list[i].LastUpdate = time.UnixMilli(*s.LastSeen)
		}
		if s.LastWrite != nil {
			date, err := strconv.ParseInt(s.LastWrite.Date.Number, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			list[i].LastWrite = time.UnixMilli(date)
		}
	}
	kind, known := specKinds[f.Topology.Type]
	if !known {
		t.Fatalf("unknown topology type %q", f.Topology.Type)
	}
	config := topology.Config{Kind: kind}
	if f.Heartbeat != nil {
		config.Heartbeat = millis(*f.Heartbeat)
	}
	empty, err := topology.NewSet(config, list)
	if err != nil {
		t.Fatal(err)
	}
	set, err := empty.Describe(kind, list)
	if err != nil {
		t.Fatal(err)
	}
	if set.Kind() != kind {
		t.Fatalf("the servers make the set a %v, the file says %v", set.Kind(), kind)
	}
	return set
}

func (f *specFile) criteria(t *testing.T) (selection.Criteria, error) {
	t.Helper()
	if f.Operation == "write" {
		return selection.Criteria{}, nil
	}
	var preference selection.ReadPreference
	if mode := f.Preference.Mode; mode != "" {
		var err error
		if preference.Mode, err = selection.ParseMode(mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, set := range f.Preference.TagSets {
		preference.TagSets = append(preference.TagSets, set)
	}
	var constraints []selection.Constraint
	if bound := f.Preference.MaxStaleness; bound != nil && *bound != -1 {
		constraints = append(constraints, selection.MaxStaleness(*bound*float64(time.Second)))
	}
	return selection.NewCriteria(&preference, nil, constraints...)
}

func (f *specFile) runSelection(t *testing.T) {
	t.Helper()
	criteria, err := f.criteria(t)
	request := selection.Request{Criteria: criteria}
	if f.Operation == "write" {
		request.Operation = selection.Write
	}
	for _, server := range f.Deprioritized {
		request.Deprioritized = append(request.Deprioritized, server.Address)
	}
	var explanation selection.Explanation
	set := f.set(t)
	if err == nil {
		explanation, err = selection.Explain(set, request)
	}
	if f.Error {
		if err == nil {
			t.Errorf("no error, but\n%s", explanation)
		}
		if choice, err := selection.Select(set, request); err == nil {
			t.Errorf("selected %s", choice.Server().Address)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var suitable, inWindow []string
	for _, verdict := range explanation.Servers {
		if verdict.Suitable() {
			suitable = append(suitable, verdict.Server.Address)
		}
		if verdict.InWindow() {
			inWindow = append(inWindow, verdict.Server.Address)
		}
	}
	wantAddresses(t, "suitable servers", f.Suitable, suitable)
	wantAddresses(t, "servers in the latency window", f.InWindow, inWindow)
	f.selectOften(t, set, request)
}

// selectOften checks that Select chooses each server in the window and no other.
func (f *specFile) selectOften(t *testing.T, set topology.Set, request selection.Request) {
	t.Helper()
	request.Random = rand.NewPCG(7, 7)
	var chosen []string
	for range 200 {
		choice, err := selection.Select(set, request)
		if (err != nil) != (len(f.InWindow) == 0) {
			t.Fatalf("selected %q, error %v", choice.Server().Address, err)
		}
		if err == nil {
			chosen = append(chosen, choice.Server().Address)
			choice.Release()
		}
	}
	slices.Sort(chosen)
	wantAddresses(t, "servers chosen", f.InWindow, slices.Compact(chosen))
}

func wantAddresses(t *testing.T, what string, want []specServer, got []string) {
	t.Helper()
	var addresses []string
	for _, server := range want {
		addresses = append(addresses, server.Address)
	}
	slices.Sort(addresses)
	slices.Sort(got)
	if diff := cmp.Diff(addresses, got); diff != "" {
		t.Errorf("%s differ (-want +got):\n%s", what, diff)
	}
}

func (f *specFile) runInWindow(t *testing.T) {
	t.Helper()
	set := f.set(t)
	for _, state := range f.State {
		load := set.Load(set.Position(state.Address))
		for range state.Count {
			load.Begin()
		}
	}
	request := selection.Request{Criteria: selection.Nearest(), Random: rand.NewPCG(11, 13)}
	counts := make(map[string]int)
	for range f.Iterations {
		choice, err := selection.Select(set, request)
		if err != nil {
			t.Fatal(err)
		}
		counts[choice.Server().Address]++
		choice.Release()
	}
	for address, expected := range f.Outcome.Expected {
		got := float64(counts[address]) / float64(f.Iterations)
		tolerance := f.Outcome.Tolerance
		if expected == 0 || expected == 1 {
			tolerance = 0
		}
		if math.Abs(got-expected) > tolerance {
			t.Errorf("%s got %.3f of the selections, want %.3f ± %.3f", address, got, expected, tolerance)
		}
	}
	for address := range counts {
		if _, listed := f.Outcome.Expected[address]; !listed {
			t.Errorf("%s was selected, but is not expected", address)
		}
	}
}
