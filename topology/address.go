package topology

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Address is where a server listens: a host with a port, or the path of a
// Unix socket. It is a comparable value; equal addresses reach the same
// listener. The zero value is no address.
type Address struct {
	// Host is a lower-case host name, an IP address without brackets (with its
	// zone, if any), or the path of a socket.
	Host string
	// Port is 1 to 65535; for a socket it may be 0.
	Port int
}

// AddressError says why a server's address was refused. Its text never
// repeats an address that may carry a password.
type AddressError struct {
	// Address is the refused text; empty if it looked like a URL.
	Address string
	// Reason says what is wrong with it.
	Reason string
	// Hint says how to write it; it may be empty.
	Hint string
}

// Error names the address, the reason and the hint.
func (e *AddressError) Error() string {
	text := fmt.Sprintf("server address %q: %s", e.Address, e.Reason)
	if e.Address == "" {
		text = "server address: " + e.Reason
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// ParseAddress reads "host:port", "host", "[v6]:port", "[v6]", "/path" or
// "/path:port". defaultPort is the engine's and completes an address without a
// port; with 0 such an address is refused. A socket takes no default port.
// Every error is an *AddressError.
func ParseAddress(text string, defaultPort int) (Address, error) {
	switch {
	case text == "":
		return Address{}, &AddressError{Reason: "it is empty", Hint: "write host:port"}
	case strings.Contains(text, "://") || strings.Contains(text, "@"):
		return Address{}, &AddressError{Reason: "it looks like a URL or carries a user name", Hint: "write host:port alone"}
	case strings.HasPrefix(text, "/"):
		return parseSocket(text)
	case strings.HasPrefix(text, "["):
		return parseBracketed(text, defaultPort)
	}
	host, port, hasPort := strings.Cut(text, ":")
	if strings.Contains(port, ":") {
		return Address{}, &AddressError{Address: text, Reason: "more than one colon", Hint: "put an IPv6 address in brackets, as in [::1]:5432"}
	}
	if hasPort {
		number, err := parsePort(text, port)
		if err != nil {
			return Address{}, err
		}
		return NewAddress(host, number)
	}
	if defaultPort == 0 {
		return Address{}, &AddressError{Address: text, Reason: "it has no port", Hint: "write host:port"}
	}
	return NewAddress(host, defaultPort)
}

// NewAddress joins a host given without brackets, or a socket path, and a
// port. An IPv6 host may have a zone. Every error is an *AddressError.
func NewAddress(host string, port int) (Address, error) {
	if strings.HasPrefix(host, "/") {
		if port < 0 || port > 65535 {
			return Address{}, &AddressError{Address: host, Reason: fmt.Sprintf("port %d is not in 0..65535", port)}
		}
		return Address{Host: host, Port: port}, nil
	}
	if port < 1 || port > 65535 {
		return Address{}, &AddressError{Address: host, Reason: fmt.Sprintf("port %d is not in 1..65535", port)}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return Address{Host: ip.String(), Port: port}, nil
	}
	if err := checkHostName(host); err != nil {
		return Address{}, err
	}
	return Address{Host: strings.ToLower(host), Port: port}, nil
}

// String returns the canonical text, which ParseAddress reads back to an equal
// Address.
func (a Address) String() string {
	switch {
	case a.Host == "":
		return ""
	case strings.HasPrefix(a.Host, "/") && a.Port == 0:
		return a.Host
	case strings.Contains(a.Host, ":") && !strings.HasPrefix(a.Host, "/"):
		return "[" + a.Host + "]:" + strconv.Itoa(a.Port)
	default:
		return a.Host + ":" + strconv.Itoa(a.Port)
	}
}

// Network is "unix" for a socket and "tcp" otherwise, as net.Dial takes it.
func (a Address) Network() string {
	if strings.HasPrefix(a.Host, "/") {
		return "unix"
	}
	return "tcp"
}

func parseSocket(text string) (Address, error) {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 || !isDigits(text[colon+1:]) {
		return Address{Host: text}, nil
	}
	port, err := parsePort(text, text[colon+1:])
	if err != nil {
		return Address{}, err
	}
	return NewAddress(text[:colon], port)
}

func parseBracketed(text string, defaultPort int) (Address, error) {
	host, rest, closed := strings.Cut(text[1:], "]")
	if !closed {
		return Address{}, &AddressError{Address: text, Reason: "the bracket is not closed", Hint: "write [::1]:5432"}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Is6() {
		return Address{}, &AddressError{Address: text, Reason: "what stands in brackets is no IPv6 address"}
	}
	switch {
	case rest == "" && defaultPort == 0:
		return Address{}, &AddressError{Address: text, Reason: "it has no port", Hint: "write [::1]:5432"}
	case rest == "":
		return NewAddress(host, defaultPort)
	case rest[0] != ':':
		return Address{}, &AddressError{Address: text, Reason: "a colon and a port must follow the bracket", Hint: "write [::1]:5432"}
	}
	port, err := parsePort(text, rest[1:])
	if err != nil {
		return Address{}, err
	}
	return NewAddress(host, port)
}

func parsePort(text, port string) (int, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || !isDigits(port) {
		return 0, &AddressError{Address: text, Reason: fmt.Sprintf("port %q is not a number in 1..65535", port)}
	}
	return int(number), nil
}

func checkHostName(host string) error {
	if host == "" || host == "." {
		return &AddressError{Address: host, Reason: "it has no host", Hint: "write host:port"}
	}
	if strings.Contains(host, ":") {
		return &AddressError{Address: host, Reason: "a colon in a host that is no IPv6 address", Hint: "put an IPv6 address in brackets, as in [::1]:5432"}
	}
	for _, r := range host {
		if r <= ' ' || r == 0x7f || strings.ContainsRune(`/\[]%"'<>?#,;=`, r) {
			return &AddressError{Address: host, Reason: fmt.Sprintf("character %q is not allowed in a host", r)}
		}
	}
	return nil
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
