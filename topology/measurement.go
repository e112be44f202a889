package topology

import (
	"math"
	"time"
)

// Measurement is a duration that may be unknown. The zero value is unknown:
// absence of evidence is never a measured zero. Measurements are comparable.
type Measurement struct {
	plusOne int64 // the duration in nanoseconds plus one; 0 means unknown
}

// Measured returns a known Measurement. A negative duration cannot have been
// measured and gives an unknown one.
func Measured(d time.Duration) Measurement {
	if d < 0 {
		return Measurement{}
	}
	if d == math.MaxInt64 {
		d--
	}
	return Measurement{plusOne: int64(d) + 1}
}

// Value returns the duration and whether it is known; the duration of an
// unknown Measurement is 0 and means nothing.
func (m Measurement) Value() (time.Duration, bool) {
	if m.plusOne == 0 {
		return 0, false
	}
	return time.Duration(m.plusOne - 1), true
}

// Known reports whether there is a measured value.
func (m Measurement) Known() bool { return m.plusOne != 0 }

// AtMost reports whether the value is known and no greater than limit.
func (m Measurement) AtMost(limit time.Duration) bool {
	return m.plusOne != 0 && time.Duration(m.plusOne-1) <= limit
}

// String returns the duration's text or "unknown".
func (m Measurement) String() string {
	d, known := m.Value()
	if !known {
		return "unknown"
	}
	return d.Round(time.Microsecond).String()
}

// averageDivisor is 1/α of the moving average: α = 0.2 (MongoDB server
// selection, "Calculation of Average Round Trip Times").
const averageDivisor = 5

// Average adds a round-trip sample to an exponentially weighted moving average
// with α = 0.2. The first sample is taken as it is; an unknown sample changes
// nothing.
func Average(average, sample Measurement) Measurement {
	value, known := sample.Value()
	if !known {
		return average
	}
	old, known := average.Value()
	if !known {
		return sample
	}
	return Measured(old + (value-old)/averageDivisor)
}
