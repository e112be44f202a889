package replicas

import (
	"fmt"
	"os"
)

// Folder makes a temporary folder that the servers of [Demo] can reach. Root's
// own temporary folder may be closed to others.
func Folder() (string, error) {
	within := ""
	if os.Geteuid() == 0 {
		within = "/tmp"
	}
	dir, err := os.MkdirTemp(within, "shardway-demo-")
	if err != nil {
		return "", fmt.Errorf("making a folder for servers: %w", err)
	}
	return dir, nil
}
