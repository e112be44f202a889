package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Outcome is what a client was told of its operation.
type Outcome string

// The outcomes. An operation without one was under way when its client died.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"  // it cannot have changed anything
	Unknown Outcome = "unknown" // it may have changed something, now or later
)

// Event is a line of a journal: the begin of an operation, or its end.
type Event struct {
	ID      string  `json:"id"` // of the operation
	Key     int64   `json:"key,omitempty"`
	Read    bool    `json:"read,omitempty"`
	At      int64   `json:"at"` // nanoseconds since 1970; all clients are on one machine
	Outcome Outcome `json:"outcome,omitempty"`
	Value   string  `json:"value,omitempty"` // read
	Error   string  `json:"error,omitempty"`
}

// journal appends events to a file. What was appended outlives the process.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	return &journal{file: f}, nil
}

// append writes an event, or ends the program: a client without a journal
// proves nothing.
func (j *journal) append(e Event) {
	e.At = time.Now().UnixNano()
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// Operation is what the journals tell of one operation.
type Operation struct {
	ID         string
	Client     string
	Key        int64
	Read       bool
	Value      string // read
	Begin, End int64  // End is 0 without an outcome
	Outcome    Outcome
	Error      string
}

// ReadJournals reads every *.journal in a folder. A last line that a killed
// client has not finished counts as not written.
func ReadJournals(dir string) ([]Operation, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		return nil, err
	}
	var all []Operation
	for _, file := range files {
		operations, err := readJournal(file)
		if err != nil {
			return nil, fmt.Errorf("reading journal %s: %w", file, err)
		}
		all = append(all, operations...)
	}
	return all, nil
}

func readJournal(path string) ([]Operation, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var operations []Operation
	at := map[string]int{}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return operations, nil
		}
		if err != nil {
			return nil, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		i, begun := at[e.ID]
		switch {
		case !begun && e.Outcome == "":
			at[e.ID] = len(operations)
			operations = append(operations, Operation{ID: e.ID, Client: filepath.Base(path), Key: e.Key, Read: e.Read, Begin: e.At})
		case begun && e.Outcome != "" && operations[i].Outcome == "":
			o := &operations[i]
			o.End, o.Outcome, o.Value, o.Error = e.At, e.Outcome, e.Value, e.Error
		default:
			return nil, fmt.Errorf("operation %s: event out of order", e.ID)
		}
	}
}
