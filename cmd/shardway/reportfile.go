package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/shardway/shardway/recovery"
)

// parseReports reads what saveReports has written; file is what errors call it.
// They name the line, and say in words what is expected there.
func parseReports(file string, text []byte) ([]recovery.Report, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	refuse := func(err error) error {
		at := dec.InputOffset()
		if errors.Is(err, errBreaksOff) {
			at = int64(len(bytes.TrimRight(text, " \t\r\n")))
		}
		return usagef("reading report %s, line %d: %w", file, lineAt(text, at), err)
	}
	switch start, err := dec.Token(); {
	case len(bytes.TrimSpace(text)) == 0:
		return nil, refuse(errors.New("the file is empty"))
	case err != nil || start != json.Delim('['):
		return nil, refuse(errors.New("is not a list of reports, as shardway recovery detect --out writes it"))
	}
	var all []recovery.Report
	for dec.More() {
		var one json.RawMessage
		if err := dec.Decode(&one); err != nil {
			return nil, refuse(broken(err))
		}
		var r recovery.Report
		if err := json.Unmarshal(one, &r); err != nil {
			// The line of the report: where it begins says more than where it ends.
			return nil, usagef("reading report %s, line %d: report %d: %w", file, lineAt(text, dec.InputOffset()-int64(len(one))), len(all)+1, broken(err))
		}
		all = append(all, r)
	}
	if _, err := dec.Token(); err != nil {
		return nil, refuse(broken(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, refuse(errors.New("text follows the end of the list"))
	}
	return all, nil
}

var errBreaksOff = errors.New("the text breaks off: the file is not whole")

// broken says in words what is wrong with JSON text.
func broken(err error) error {
	var other *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errBreaksOff
	case errors.As(err, &other) && other.Field != "":
		return fmt.Errorf("field %q: a %s stands where something else is due", other.Field, other.Value)
	case errors.As(err, &other):
		return fmt.Errorf("a %s stands where a report is due", other.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("no JSON: %w", err)
	}
	return err
}

// lineAt is the number of the line at an offset.
func lineAt(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(offset, int64(len(text)))], []byte("\n"))
}
