package customers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestTraffic_drain waits for the units under way in the span, and for no other.
func TestTraffic_drain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		customers []int64 // with a unit under way
		end       []int64 // those whose unit ends
		want      int     // units waited for; -1: it still waits
	}{
		"nobody":         {nil, nil, 0},
		"others":         {[]int64{9, 20}, nil, 0},
		"first and last": {[]int64{10, 19, 20}, []int64{10, 19}, 2},
		"one is left":    {[]int64{10, 19}, []int64{10}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tr := &traffic{units: map[*unit]bool{}}
				units := map[int64]*unit{}
				for _, id := range c.customers {
					units[id] = &unit{customer: id, ended: make(chan struct{})}
					tr.units[units[id]] = true
				}
				ctx, cancel := context.WithCancel(t.Context())
				got, err := -1, error(nil)
				go func() { got, err = tr.drain(ctx, span{10, 20}) }()
				synctest.Wait()
				if got != -1 && len(c.end) > 0 {
					t.Errorf("waited for nobody, %v", err)
				}
				for _, id := range c.end {
					close(units[id].ended)
				}
				synctest.Wait()
				if got != c.want || err != nil {
					t.Errorf("got %d, %v, want %d", got, err, c.want)
				}
				cancel()
				synctest.Wait()
				if c.want == -1 && !errors.Is(err, context.Canceled) {
					t.Errorf("got %d, %v, want the end of the context", got, err)
				}
			})
		})
	}
}
