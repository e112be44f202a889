package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
)

// notes prints what the catalog logs, operations ended for somebody else, as
// sentences for the operator.
type notes struct{ w io.Writer }

func (n *notes) Enabled(context.Context, slog.Level) bool { return true }
func (n *notes) WithAttrs([]slog.Attr) slog.Handler       { return n }
func (n *notes) WithGroup(string) slog.Handler            { return n }

func (n *notes) Handle(_ context.Context, r slog.Record) error {
	fields := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		fields[a.Key] = a.Value.String()
		return true
	})
	what := fmt.Sprintf("operation %s (%s) of shard map %q, left behind by another client,", fields["operation"], fields["kind"], fields["map"])
	switch fields["outcome"] {
	case "done":
		what += " was finished"
	case "undone":
		what += " was taken back"
	default:
		what += " could not be ended: " + fields["error"]
	}
	_, err := fmt.Fprintf(n.w, "note: %s\n", printable(what))
	return err
}
