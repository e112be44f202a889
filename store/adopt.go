package store

import "context"

// Adopter is a local store that can be given to another global store. Local
// stores may implement it; those of package sqlstore and memstore do.
type Adopter interface {
	// Adopt makes a local store that belongs to the global store from one of
	// the global store to. Its maps stay as they are. One that belongs to
	// neither is ErrForeignStore; one that belongs to to already is no error.
	//
	// Operations of the owner before that have not ended are never applied any
	// more when they come late: what was forgotten stays forgotten, see
	// [Description.Forgotten]. Those of the new one need a higher Seq.
	Adopt(ctx context.Context, from, to string) error
}
