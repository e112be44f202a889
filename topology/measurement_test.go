package topology_test

import (
	"math"
	"testing"
	"time"

	"github.com/shardway/shardway/topology"
)

func TestMeasurement(t *testing.T) {
	t.Parallel()
	var unknown topology.Measurement
	if _, known := unknown.Value(); known || unknown.Known() || unknown.AtMost(math.MaxInt64) || unknown.String() != "unknown" {
		t.Error("the zero Measurement is not unknown")
	}
	zero := topology.Measured(0)
	if d, known := zero.Value(); !known || d != 0 || zero == unknown || !zero.AtMost(0) || zero.String() != "0s" {
		t.Error("a measured zero is not known")
	}
	if topology.Measured(-1).Known() {
		t.Error("a negative duration counts as measured")
	}
	if d, known := topology.Measured(math.MaxInt64).Value(); !known || d < math.MaxInt64-1 {
		t.Errorf("the greatest duration became %v, %v", d, known)
	}
}

// LAT-04: the first sample is the average, and nothing is never zero.
func TestAverage(t *testing.T) {
	t.Parallel()
	ms := func(x float64) topology.Measurement {
		return topology.Measured(time.Duration(x * float64(time.Millisecond)))
	}
	var unknown topology.Measurement
	for name, test := range map[string]struct{ average, sample, want topology.Measurement }{
		"first sample":           {unknown, ms(17), ms(17)},
		"first sample is zero":   {unknown, ms(0), ms(0)},
		"grows by a fifth":       {ms(10), ms(20), ms(12)},
		"falls by a fifth":       {ms(20), ms(10), ms(18)},
		"average zero counts":    {ms(0), ms(10), ms(2)},
		"equal stays":            {ms(7.77), ms(7.77), ms(7.77)},
		"no sample":              {ms(5), unknown, ms(5)},
		"negative sample":        {ms(5), ms(-1), ms(5)},
		"first sample negative":  {unknown, ms(-1), unknown},
		"greatest does not wrap": {topology.Measured(math.MaxInt64), topology.Measured(math.MaxInt64), topology.Measured(math.MaxInt64)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := topology.Average(test.average, test.sample); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
