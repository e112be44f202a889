package chaos

import (
	"strings"
	"testing"
)

func TestJudgeWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome Outcome
		rows    int
		fault   string
	}{
		"acknowledged and there":  {OK, 1, ""},
		"acknowledged and lost":   {OK, 0, "there 0 times"},
		"acknowledged, twice":     {OK, 2, "there 2 times"},
		"failed":                  {Failed, 0, ""},
		"failed and there":        {Failed, 1, "failed"},
		"unknown":                 {Unknown, 1, ""},
		"unknown, not there":      {Unknown, 0, ""},
		"unknown, twice":          {Unknown, 2, "there 2 times"},
		"client died, there":      {"", 1, ""},
		"client died, twice":      {"", 2, "there 2 times"},
		"client died, not there":  {"", 0, ""},
		"nobody has written this": {"none", 1, "no journal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var operations []Operation
			if c.outcome != "none" {
				operations = []Operation{{ID: "w", Key: 1, Outcome: c.outcome}}
			}
			var v Verdict
			judgeWrites(operations, map[string]int{"w": c.rows}, &v)
			if got := strings.Join(v.Faults, "\n"); (c.fault == "") != (got == "") || !strings.Contains(got, c.fault) {
				t.Errorf("faults %q, want one with %q", got, c.fault)
			}
		})
	}
}

func TestJudgeOrder(t *testing.T) {
	t.Parallel()
	write := func(id string, begin, end int64, outcome Outcome) Operation {
		return Operation{ID: id, Begin: begin, End: end, Outcome: outcome}
	}
	read := func(value string, begin, end int64) Operation {
		return Operation{ID: "r", Read: true, Value: value, Begin: begin, End: end, Outcome: OK}
	}
	for name, c := range map[string]struct {
		operations []Operation
		rows       string // ids of writes that are there
		value      string
		wrong      bool
	}{
		"in a row":             {[]Operation{write("a", 1, 2, OK), read("a", 3, 4), write("b", 5, 6, OK), read("b", 7, 8)}, "ab", "b", false},
		"nothing yet":          {[]Operation{read("", 1, 2), write("a", 3, 4, OK)}, "a", "a", false},
		"a stale read":         {[]Operation{write("a", 1, 2, OK), write("b", 3, 4, OK), read("a", 5, 6)}, "ab", "b", true},
		"back in time":         {[]Operation{write("a", 1, 2, OK), write("b", 3, 10, OK), read("b", 4, 5), read("a", 6, 7)}, "ab", "b", true},
		"at once":              {[]Operation{write("a", 1, 10, OK), write("b", 2, 9, OK), read("b", 3, 4), read("a", 5, 6)}, "ab", "a", false},
		"unknown, later":       {[]Operation{write("a", 1, 2, OK), write("b", 3, 4, Unknown), read("a", 5, 6), read("b", 7, 8)}, "ab", "b", false},
		"unknown, not there":   {[]Operation{write("a", 1, 2, OK), write("b", 3, 4, Unknown), read("a", 5, 6)}, "a", "a", false},
		"seen and gone":        {[]Operation{write("a", 1, 2, OK), write("b", 3, 4, Unknown), read("b", 5, 6)}, "a", "a", true},
		"overwritten at last":  {[]Operation{write("a", 1, 2, OK), write("b", 3, 4, OK)}, "ab", "a", true},
		"a failed read":        {[]Operation{write("a", 1, 2, OK), {ID: "r", Read: true, Begin: 3, End: 4, Outcome: Failed}}, "a", "a", false},
		"nothing was recorded": {nil, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := map[string]int{}
			for _, id := range c.rows {
				rows[string(id)] = 1
			}
			var v Verdict
			judgeOrder(c.operations, rows, map[int64]string{0: c.value}, &v)
			if (len(v.Faults) > 0) != c.wrong {
				t.Errorf("faults %q", v.Faults)
			}
		})
	}
}
