package sqlshard

import "github.com/shardway/shardway"

// Unlock turns the lock of transactions off in the pools that are open: they
// validate plainly then, as connections do. Tags are off too, since changes end
// sessions by them.
func Unlock[K shardway.KeyType](db *DB[K]) {
	db.opener.places.Each(func(_ string, p *pool) {
		p.host.mu.Lock()
		defer p.host.mu.Unlock()
		p.ask = questions{plain: p.ask.plain, lock: p.ask.plain}
	})
}
