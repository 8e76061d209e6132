package org.apache.hadoop.ipc;

import org.apache.hadoop.security.UserGroupInformation;

/** A call of a user, with the level that it was given. */
final class Call implements Schedulable {
    final String name;
    private final String user;
    private final int level;

    Call(String name, String user, int level) {
        this.name = name;
        this.user = user;
        this.level = level;
    }

    @Override
    public UserGroupInformation getUserGroupInformation() {
        return UserGroupInformation.createRemoteUser(user);
    }

    @Override
    public int getPriorityLevel() {
        return level;
    }
}
