package store

import "context"

// Adopter is a local store that can be given to another global store. Local
// stores may implement it; those of package sqlstore and memstore do.
type Adopter interface {
	// Adopt makes a local store that belongs to the global store from one of
	// the global store to. Its maps stay as they are. One that belongs to
	// neither is ErrForeignStore; one that belongs to to already is no error.
	//
	// It forgets which operations are too old to be applied: the new owner
	// counts its operations anew. So it does when from and to are the same,
	// which is for a global store that was restored from a backup.
	Adopt(ctx context.Context, from, to string) error
}
