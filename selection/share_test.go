package selection_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

func wantShare(t *testing.T, counts map[string]int, address string, want, tolerance float64) {
	t.Helper()
	total := 0
	for _, n := range counts {
		total += n
	}
	if got := float64(counts[address]) / float64(total); math.Abs(got-want) > tolerance {
		t.Errorf("%s got %.4f of the choices, want %.4f ± %.4f", address, got, want, tolerance)
	}
}

func TestWeights(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, secondary("a:1", ms), secondary("b:1", ms), secondary("c:1", ms), secondary("drained:1", ms))
	counts := tally(t, set, reads(selection.Nearest(selection.Weights{"a:1": 3, "b:1": 0.5, "drained:1": 0, "nobody:1": 9})), 20_000)
	wantShare(t, counts, "a:1", 3/4.5, 0.02)
	wantShare(t, counts, "b:1", 0.5/4.5, 0.02)
	wantShare(t, counts, "c:1", 1/4.5, 0.02)
	wantShare(t, counts, "drained:1", 0, 0)

	none := selection.Weights{"a:1": 0, "b:1": 0, "c:1": 0, "drained:1": 0}
	counts = tally(t, set, reads(selection.Nearest(none)), 8000)
	for address := range none {
		wantShare(t, counts, address, 0.25, 0.03)
	}

	busy := set.Load(set.Position("a:1"))
	for range 10 {
		busy.Begin()
	}
	counts = tally(t, set, reads(selection.Nearest(selection.Weights{"a:1": 3})), 8000)
	if got := float64(counts["a:1"]) / 8000; got > 0.3 {
		t.Errorf("the busy server still got %.2f", got)
	}
}

// The criteria keep their own copy.
func TestWeights_copied(t *testing.T) {
	t.Parallel()
	weights := selection.Weights{"a:1": 0}
	criteria := selection.Nearest(weights)
	weights["a:1"], weights["b:1"] = 1, 0
	wantOnly(t, replicaSet(t, secondary("a:1", ms), secondary("b:1", ms)), reads(criteria), "b:1")
}

// A zone keeps its traffic as long as no server exceeds its fair share by 15 %.
func TestZone(t *testing.T) {
	t.Parallel()
	for near := 1; near <= 8; near++ {
		for _, n := range []int{1_000, 20_000} {
			t.Run(fmt.Sprintf("%d of 9 near, %d choices", near, n), func(t *testing.T) {
				t.Parallel()
				var list []topology.Server
				for i := range 9 {
					zone := "far"
					if i < near {
						zone = "near"
					}
					list = append(list, secondary(fmt.Sprintf("s%d:1", i), ms, tags("zone", zone)))
				}
				set := replicaSet(t, list...)
				request := selection.Request{Criteria: selection.Nearest(selection.Zone{Tag: "zone", Value: "near"}), Random: rand.NewPCG(uint64(near), 5)}
				counts := tally(t, set, request, n)
				stayed := 0
				for i, s := range list {
					if share := float64(counts[s.Address]) / float64(n) * 9; share > 1.15 {
						t.Errorf("%s got %.3f times the mean", s.Address, share)
					}
					if i < near {
						stayed += counts[s.Address]
					}
				}
				want := math.Min(1, float64(near)*1.14/9)
				if got := float64(stayed) / float64(n); math.Abs(got-want) > 0.015 {
					t.Errorf("%.3f of the choices stayed in the zone, want %.3f", got, want)
				}
			})
		}
	}
}

func TestZone_outsideItsReach(t *testing.T) {
	t.Parallel()
	zone := selection.Zone{Tag: "zone", Value: "near"}
	near, far := tags("zone", "near"), tags("zone", "far")
	wantOnly(t, replicaSet(t, secondary("a:1", ms, near), secondary("b:1", ms, near)), reads(selection.Nearest(zone)), "a:1", "b:1")
	wantOnly(t, replicaSet(t, secondary("a:1", ms, far), secondary("b:1", ms)), reads(selection.Nearest(zone)), "a:1", "b:1")
	wantOnly(t, replicaSet(t, secondary("a:1", 50*ms, near), secondary("b:1", ms, far)), reads(selection.Nearest(zone)), "b:1")
}

// A near server that became slow gives its work away.
func TestZone_busyServer(t *testing.T) {
	t.Parallel()
	near, far := tags("zone", "near"), tags("zone", "far")
	set := replicaSet(t, secondary("a:1", ms, near), secondary("busy:1", ms, near), secondary("c:1", ms, far), secondary("d:1", ms, far))
	for range 5 {
		set.Load(1).Begin()
	}
	counts := tally(t, set, reads(selection.Nearest(selection.Zone{Tag: "zone", Value: "near"})), 10_000)
	wantShare(t, counts, "busy:1", 0, 0.01)
	wantShare(t, counts, "a:1", 1.14/4, 0.01)
}

// LAT-05: ten workers read for ten seconds while one of three servers answers
// ten times slower; it gets less than a tenth, though its average round trip is
// still in the window, and nothing stays counted.
func TestSelect_slowServerUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := replicaSet(t, secondary("a:1", 5*ms), secondary("b:1", 5*ms), secondary("slow:1", 14*ms))
		var mu sync.Mutex
		counts := make(map[string]int)
		var work sync.WaitGroup
		for worker := range uint64(10) {
			request := selection.Request{Criteria: selection.Nearest(), Random: rand.NewPCG(worker, 8)}
			work.Go(func() {
				for began := time.Now(); time.Since(began) < 10*time.Second; {
					choice, err := selection.Select(set, request)
					if err != nil {
						t.Error(err)
						return
					}
					address := choice.Server().Address
					mu.Lock()
					counts[address]++
					mu.Unlock()
					if time.Sleep(5 * ms); address == "slow:1" { // fake time
						time.Sleep(45 * ms)
					}
					choice.Release()
				}
			})
		}
		work.Wait()
		share := float64(counts["slow:1"]) / float64(counts["a:1"]+counts["b:1"]+counts["slow:1"])
		if share >= 0.1 || counts["slow:1"] == 0 {
			t.Errorf("the slow server got %.3f of the reads: %v", share, counts)
		}
		for i := range 3 {
			if n := set.Load(i).InFlight(); n != 0 {
				t.Errorf("%d operations stay counted on %s", n, set.Server(i).Address)
			}
		}
	})
}
