//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgxshard

import (
	"errors"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// silent reports whether a session that should be idle is: its socket is open
// and nothing has come in. One that the server has ended says so, or is closed.
// It looks at the socket alone, takes no time and changes nothing.
func silent(conn *pgx.Conn) bool {
	c := conn.PgConn().Conn()
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // encrypted
		c = t.NetConn()
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	// Control and not Read, which would wait for the driver's background reader.
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
	})
	return err == nil && quiet
}
