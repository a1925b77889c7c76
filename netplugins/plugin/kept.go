package plugin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// keptConfig is the configuration of the main process, in StateDir: a daemon writes it to the first one's stdin alone,
// and a stager that starts the app again gives that an empty stdin.
const keptConfig = StateDir + "/setup.json"

// mainConfig is readConfig for a main process: it keeps what it reads, and an empty stdin means what has been kept.
func mainConfig(stdin io.Reader) ([]byte, error) {
	config, err := readConfig(stdin)
	if err == nil {
		return config, keep(config)
	}
	if !errors.Is(err, errEmpty) {
		return nil, err
	}
	kept, err := os.Open(keptConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errEmpty
	}
	if err != nil {
		return nil, err
	}
	defer kept.Close()
	if config, err = readConfig(kept); err != nil {
		return nil, fmt.Errorf("%s: %w", keptConfig, err)
	}
	return config, nil
}

// keep writes a configuration, which may have passwords, to keptConfig in one step. There is one main process.
func keep(config []byte) error {
	if err := os.MkdirAll(filepath.Dir(keptConfig), 0o700); err != nil {
		return err
	}
	fresh := keptConfig + ".new"
	if err := os.WriteFile(fresh, config, 0o600); err != nil {
		_ = os.Remove(fresh) // it may not be there
		return err
	}
	return os.Rename(fresh, keptConfig)
}
