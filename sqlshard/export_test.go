package sqlshard

import "github.com/shardway/shardway"

// Unlock turns the lock of transactions off in the pools that are open: they
// validate plainly then, as connections do. Tags are off too, since changes end
// sessions by them.
func Unlock[K shardway.KeyType](db *DB[K]) {
	p := db.opener.places
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.hosts {
		h.mu.Lock()
		for _, pool := range h.pools {
			pool.ask = questions{plain: pool.ask.plain, lock: pool.ask.plain}
		}
		h.mu.Unlock()
	}
}
