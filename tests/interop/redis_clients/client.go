// go-redis, redislock and redsync on a RESP port: counters, expiry, transactions, locks.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func require(ok bool, what ...any) {
	if !ok {
		panic(fmt.Sprint(what...))
	}
}

func counters(ctx context.Context, client *redis.Client) {
	var group sync.WaitGroup
	for range 20 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 10 {
				err := client.Incr(ctx, "go:n").Err()
				require(err == nil, err)
			}
		}()
	}
	group.Wait()
	require(client.Get(ctx, "go:n").Val() == "200", "counter")
	err := client.Watch(ctx, func(tx *redis.Tx) error {
		n, _ := tx.Get(ctx, "go:n").Int()
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "go:n", n+1, 100*time.Second)
			return nil
		})
		return err
	}, "go:n")
	require(err == nil, err)
	require(client.TTL(ctx, "go:n").Val() == 100*time.Second, "lifetime")
	require(!client.ExpireGT(ctx, "go:n", time.Second).Val(), "condition")
	require(client.GetRange(ctx, "go:n", 0, 1).Val() == "20", "range")
	client.Del(ctx, "go:n")
}

func locks(ctx context.Context, client *redis.Client) {
	locker := redislock.New(client)
	lock, err := locker.Obtain(ctx, "go:lock", 10*time.Second, nil)
	require(err == nil, err)
	_, err = locker.Obtain(ctx, "go:lock", time.Second, nil)
	require(err == redislock.ErrNotObtained, "obtained twice: ", err)
	left, err := lock.TTL(ctx)
	require(err == nil && left > time.Second, left, err)
	require(lock.Refresh(ctx, 20*time.Second, nil) == nil, "refresh")
	require(lock.Release(ctx) == nil, "release")
	require(lock.Release(ctx) == redislock.ErrLockNotHeld, "released twice")

	mutexes := redsync.New(goredis.NewPool(client))
	mutex := mutexes.NewMutex("go:mutex", redsync.WithTries(1), redsync.WithExpiry(10*time.Second))
	require(mutex.Lock() == nil, "lock")
	require(mutexes.NewMutex("go:mutex", redsync.WithTries(1)).Lock() != nil, "locked twice")
	ok, err := mutex.Extend()
	require(ok, "extend", err)
	ok, err = mutex.Unlock()
	require(ok, "unlock", err)
}

func main() {
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol})
		counters(context.Background(), client)
		locks(context.Background(), client)
	}
	fmt.Println("done")
}
