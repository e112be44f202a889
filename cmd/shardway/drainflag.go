package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// drainFlag says what becomes of those who use what a change takes away.
type drainFlag struct{ text string }

func (f *drainFlag) add(c *cobra.Command) {
	c.Flags().StringVar(&f.text, "drain", "", "what becomes of sessions at work for the mapping: a time (30s) waits so long and ends\n"+
		"those left, kill ends them at once, none ends nobody and gives up if they stay (default 5s)")
	complete(c, "drain", "5s", "30s", "kill", "none")
}

func (f *drainFlag) parse() (store.Drain, error) {
	switch f.text {
	case "":
		return store.Drain{}, nil
	case "kill":
		return store.Drain{Mode: store.DrainAtOnce}, nil
	case "none":
		return store.Drain{Mode: store.DrainNobody}, nil
	}
	limit, err := time.ParseDuration(f.text)
	switch {
	case err != nil:
		return store.Drain{}, &shardway.ArgumentError{Argument: "drain", Value: f.text, Reason: "is neither a time, such as 30s, nor kill, nor none"}
	case limit < 0:
		return store.Drain{}, &shardway.ArgumentError{Argument: "drain", Value: f.text, Reason: "is negative"}
	case limit == 0:
		return store.Drain{Mode: store.DrainAtOnce}, nil
	}
	return store.Drain{Limit: limit}, nil
}

// drainedView is the JSON form of the sessions that a change has met.
type drainedView struct {
	Waited int `json:"waited"` // sessions that kept it waiting
	Ended  int `json:"ended"`  // sessions it ended
	Left   int `json:"left"`   // sessions that it could not end
}

func viewDrained(d store.Drained) *drainedView {
	if d == (store.Drained{}) {
		return nil
	}
	return &drainedView{d.Waited, d.Ended, d.Left}
}

func (p *page) drained(d *drainedView) {
	if d == nil {
		return
	}
	left := ""
	if d.Left > 0 {
		left = fmt.Sprintf("; could not end %d, which must be ended by hand", d.Left)
	}
	p.line("sessions at work: waited for %d, ended %d%s", d.Waited, d.Ended, left)
}
