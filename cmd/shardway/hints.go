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

// forced tells that --force detaches a shard although its mappings are in use,
// and --gone one whose database is lost.
func forced(err error, m, shard string, gone bool) error {
	look := "shardway mapping list --shard " + word(shard) + " --map " + word(m)
	switch {
	case errors.Is(err, shardway.ErrMappingOnline):
		return &hinted{err: err, hint: "--force detaches it with its online mappings; " + look + " --status online shows them"}
	case errors.Is(err, shardway.ErrMappingLocked):
		return &hinted{err: err, hint: "--force detaches it with its locked mappings; " + look + " shows them"}
	case errors.Is(err, shardway.ErrUnavailable) && !errors.Is(err, shardway.ErrPending) && !gone:
		return &hinted{err: err, hint: "--gone detaches it without its database, when that is lost for good"}
	}
	return err
}

// adopting tells what attach needs after the loss of the global store.
func adopting(err error, restore bool) error {
	switch {
	case errors.Is(err, shardway.ErrForeignStore):
		return &hinted{err: err, hint: "--adopt with this id takes it over, when that global store is lost for good; --restore-map too while the map is not here"}
	case errors.Is(err, shardway.ErrMapNotFound) && !restore:
		return &hinted{err: err, hint: "--restore-map brings the map back under its old id; shardway map list shows those that are here"}
	}
	return err
}

// replacing tells that --server names all servers of a shard, not one more,
// unless there is something more important to do.
func replacing(err error) error {
	var told *hinted
	missed := errors.Is(err, shardway.ErrUnavailable) || errors.Is(err, shardway.ErrNoStore)
	if !missed || errors.As(err, &told) {
		return err
	}
	return &hinted{err: err, hint: "--server replaces the list of servers: name all of them, the primary too"}
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
