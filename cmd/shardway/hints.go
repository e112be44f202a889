package main

import (
	"errors"
	"strings"

	"github.com/shardway/shardway"
)

// filled puts the names of the map and the shard that an error is about, or
// the settings name, in the place of MAP and SHARD in a hint.
func (a *app) filled(hint string, err error) string {
	var at *shardway.LookupError
	if !errors.As(err, &at) {
		at = &shardway.LookupError{}
	}
	for place, name := range map[string]string{"--map MAP": at.Map, "servers SHARD": at.Shard} {
		lead, placeholder, _ := strings.Cut(place, " ")
		if placeholder == "MAP" && name == "" {
			name = a.set.text("map")
		}
		if name != "" {
			hint = strings.ReplaceAll(hint, place, lead+" "+word(name))
		}
	}
	return hint
}

// named is the mapping as the command line has it.
func (k *pick) named() string {
	if k.id != "" {
		return "--id " + word(k.id)
	}
	return "--key " + word(k.key)
}

// offlineFirst tells how an online mapping that a change has met is taken
// offline; with says what else may be done.
func (k *pick) offlineFirst(m shardway.ShardMap, err error, with string) error {
	if !errors.Is(err, shardway.ErrMappingOnline) {
		return err
	}
	return &hinted{err: err, hint: "shardway mapping offline " + k.named() + " --map " + word(m.Name) + " takes it offline" + with}
}

// forced tells that --force detaches a shard although its mappings are in use.
func forced(err error, m, shard string) error {
	look := "shardway mapping list --shard " + word(shard) + " --map " + word(m)
	switch {
	case errors.Is(err, shardway.ErrMappingOnline):
		return &hinted{err: err, hint: "--force detaches it with its online mappings; " + look + " --status online shows them"}
	case errors.Is(err, shardway.ErrMappingLocked):
		return &hinted{err: err, hint: "--force detaches it with its locked mappings; " + look + " shows them"}
	}
	return err
}

// stateError is a refusal because of what the store holds: another command,
// perhaps of somebody else, has made it so. The command line alone is not wrong.
type stateError struct{ err error }

func (e *stateError) Error() string        { return e.err.Error() }
func (e *stateError) Unwrap() error        { return e.err }
func (e *stateError) Is(target error) bool { return target == errNotAllowed }

// byState marks what a change calls a wrong argument although it is only wrong
// as things stand: split points and neighbours may be those of a moment ago, and
// shards go offline. Who loses a race is told the same as who comes late.
func byState(err error) error {
	var wrong *shardway.ArgumentError
	if errors.As(err, &wrong) {
		switch wrong.Argument {
		case "split point", "mappings", "shard":
			return &stateError{err}
		}
	}
	return err
}
