package store

import "context"

// Adopter is a local store that can be given to another global store. Local
// stores may implement it; those of package sqlstore and memstore do.
type Adopter interface {
	// Adopt makes a local store that belongs to the global store from one of
	// the global store to. Its maps stay as they are. One that belongs to
	// neither is ErrForeignStore; one that belongs to to already is no error.
	//
	// What was forgotten stays forgotten, see [Description.Forgotten]: operations
	// of the owner before are refused as before when they come late, and those of
	// the new one need a higher Seq. Adopting ends none that are under way: the
	// owner before must be gone.
	Adopt(ctx context.Context, from, to string) error
}
