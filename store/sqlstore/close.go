package sqlstore

import (
	"database/sql/driver"
	"errors"
)

// close frees the connections. One that was broken already has nothing to lose.
func (d *database) close() error {
	err := d.pool.Close()
	if errors.Is(err, driver.ErrBadConn) {
		return nil
	}
	return err
}
