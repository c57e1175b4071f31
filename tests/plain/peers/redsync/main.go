// A member of a crowd that locks with redsync.
//
// redsync SERVER,SERVER,SERVER NAME TTL_MS count FILE ROUNDS | hold
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var pools []redsyncredis.Pool
	for _, server := range strings.Split(os.Args[1], ",") {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: server})))
	}
	ttl, err := strconv.Atoi(os.Args[3])
	check(err)
	mutex := redsync.New(pools...).NewMutex(os.Args[2],
		redsync.WithExpiry(time.Duration(ttl)*time.Millisecond),
		redsync.WithTries(1_000_000),
		redsync.WithRetryDelay(20*time.Millisecond))
	release := func() {
		_, err := mutex.Unlock()
		check(err)
	}
	if os.Args[4] == "hold" {
		check(mutex.Lock())
		fmt.Println("holding")
		_, err := io.ReadAll(os.Stdin)
		check(err)
		release()
		return
	}
	rounds, err := strconv.Atoi(os.Args[6])
	check(err)
	for round := 0; round < rounds; round++ {
		check(mutex.Lock())
		text, err := os.ReadFile(os.Args[5])
		check(err)
		count, err := strconv.Atoi(string(text))
		check(err)
		time.Sleep(time.Millisecond)
		check(os.WriteFile(os.Args[5], []byte(strconv.Itoa(count+1)), 0o600))
		release()
	}
}
