package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/shardway/shardway"
)

// TryRights tries whether the login of the store may do something with one of
// its tables: privilege is SELECT, INSERT, UPDATE or DELETE, or UPDATE (column).
// It runs a statement that touches no row, in a transaction that is taken back.
// A right that is missing is [shardway.ErrUnavailable].
func (g *Global) TryRights(ctx context.Context, table, privilege string) error {
	return g.b.tryRights(ctx, table, privilege)
}

// TryRights tries a right on a table of the local store, as [Global.TryRights].
func (l *Local) TryRights(ctx context.Context, table, privilege string) error {
	return l.b.tryRights(ctx, table, privilege)
}

// firstColumns are columns that can be set to themselves.
var firstColumns = map[string]string{
	"store": "one_row", "counters": "one_row", "shard_maps": "map_id", "shards": "shard_id", "mappings": "mapping_id",
	"pending_mappings": "mapping_id", "operations": "op_id", "operation_parts": "op_id", "history": "op_id",
	"local_store": "one_row", "local_shard_maps": "map_id", "local_shards": "map_id", "local_mappings": "mapping_id",
	"local_operations": "op_id",
}

var privilegeForm = regexp.MustCompile(`^(SELECT|INSERT|DELETE|UPDATE)(?: ?\((\w+)\))?$`)

// tryStatement returns the statement that needs a privilege and does nothing.
func tryStatement(table, privilege string) (string, error) {
	form := privilegeForm.FindStringSubmatch(privilege)
	column := firstColumns[table]
	switch {
	case column == "":
		return "", &shardway.ArgumentError{Argument: "table", Value: table, Reason: "is none of a store's tables"}
	case form == nil:
		return "", &shardway.ArgumentError{Argument: "privilege", Value: privilege, Reason: "is none of SELECT, INSERT, UPDATE, DELETE"}
	case form[2] != "":
		column = form[2]
	}
	switch form[1] {
	case "SELECT":
		return `SELECT ` + column + ` FROM {` + table + `} WHERE 1 = 0`, nil
	case "DELETE":
		return `DELETE FROM {` + table + `} WHERE 1 = 0`, nil
	case "UPDATE":
		return `UPDATE {` + table + `} SET ` + column + ` = ` + column + ` WHERE 1 = 0`, nil
	}
	columns, list := ``, `*`
	if table == "history" { // its first column numbers itself
		list = `op_id, made_at, map_id, map_name, kind, outcome, who, reason, summary, generation, ranges`
		columns = ` (` + list + `)`
	}
	return `INSERT INTO {` + table + `}` + columns + ` SELECT ` + list + ` FROM {` + table + `} WHERE 1 = 0`, nil
}

// errTried takes a transaction back whose statement went well.
var errTried = errors.New("tried")

func (b *database) tryRights(ctx context.Context, table, privilege string) error {
	text, err := tryStatement(table, privilege)
	if err != nil {
		return err
	}
	err = b.write(ctx, func(t *transaction) error {
		if _, err := t.exec(ctx, text); err != nil {
			return err
		}
		return errTried
	})
	if errors.Is(err, errTried) {
		return nil
	}
	return fmt.Errorf("trying the right to %s on table %s: %w", privilege, b.d.SQL("{"+table+"}"), err)
}
