// Package served counts which servers did the commands of a client of MongoDB's driver, as the driver itself tells. The
// examples show by it where their reads and writes went. It never looks into commands.
//
//	tally := served.New("find", "getMore")
//	client, err := mongoshard.Connect(ctx, options.Client().ApplyURI(uri).SetMonitor(tally.Monitor()), config)
package served

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
)

// Tally counts commands by server. It is safe for concurrent use.
type Tally struct {
	commands []string

	mu     sync.Mutex     // guards counts
	counts map[string]int // by address
}

// New returns a Tally of the commands of these names.
func New(commands ...string) *Tally {
	return &Tally{commands: commands, counts: map[string]int{}}
}

// Monitor is what the driver tells of its commands.
func (t *Tally) Monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if !slices.Contains(t.commands, e.CommandName) {
			return
		}
		// A connection is named host:port[-number].
		address, _, _ := strings.Cut(e.ConnectionID, "[-")
		t.mu.Lock()
		defer t.mu.Unlock()
		t.counts[address]++
	}}
}

// Take returns the counts by address since the last Take.
func (t *Tally) Take() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.counts
	t.counts = map[string]int{}
	return taken
}

// Counts are numbers of commands by the server's address.
type Counts map[string]int

// Total is their sum.
func (c Counts) Total() (n int) {
	for _, count := range c {
		n += count
	}
	return n
}

// Only reports whether there are some, all of servers that fit.
func (c Counts) Only(fits func(address string) bool) bool {
	for address := range c {
		if !fits(address) {
			return false
		}
	}
	return len(c) > 0
}

// String is "db1:27017 (3), db2:27017 (17)".
func (c Counts) String() string {
	var parts []string
	for _, address := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", address, c[address]))
	}
	return strings.Join(parts, ", ")
}
