package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"kurma.io/stager/cri/server"
	"kurma.io/stager/internal/strictjson"
)

// defaultConfigFile is read if it exists and no other file is named.
const defaultConfigFile = "/etc/kurma/kurma-cri.json"

// readConfig reads a configuration file, a JSON object of server.Config; "" is the default file if it exists.
func readConfig(path string) (server.Config, error) {
	var c server.Config
	optional := path == ""
	if optional {
		path = defaultConfigFile
	}
	data, err := os.ReadFile(path)
	if optional && errors.Is(err, fs.ErrNotExist) {
		data, err = []byte("{}"), nil
	}
	if err != nil {
		return c, fmt.Errorf("read configuration: %w", err)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		err = errors.New("want a JSON object")
	} else if err = strictjson.Decode(data, &c); err == nil {
		c.Fill()
		err = c.Check()
	}
	if err != nil {
		return c, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return c, nil
}
